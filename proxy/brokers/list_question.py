"""Ask a broker's web service for the list of active brokers (`GET /admin/v2/brokers`).

The answer is a JSON list of `host:port`, where the port is that of a web service.
"""

import json
from typing import Final
from urllib.parse import quote

from proxy.brokers.admin_port import AdminPort, AdminRefused, AdminUnavailable
from proxy.brokers.known_brokers import LONGEST_HOST

PATH: Final = "/admin/v2/brokers"
LARGEST_ANSWER_BYTES: Final = 256 * 1024
MOST_HOSTS: Final = 4096


class ListQuestion:
    """Asks the web services at `urls`, the one that answered last first."""

    def __init__(self, urls: tuple[str, ...], cluster: str, port: AdminPort) -> None:
        self._urls = list(urls)
        self._cluster = cluster
        self._port = port

    async def ask(self) -> frozenset[str]:
        """Return the hosts of the list in lower case; raise AdminRefused or AdminUnavailable."""
        failure = AdminUnavailable("no web service is configured")
        for url in list(self._urls):
            try:
                hosts = _hosts(url, await self._asked(url))
            except AdminRefused:
                raise
            except AdminUnavailable as error:
                failure = error
                continue
            self._urls.remove(url)
            self._urls.insert(0, url)
            return hosts
        raise failure

    async def _asked(self, url: str) -> bytes:
        try:
            return await self._port.get(url, PATH, LARGEST_ANSWER_BYTES)
        except AdminUnavailable as error:
            if error.status != 404 or not self._cluster:
                raise
        # Brokers before 2.10 list the brokers of a named cluster only.
        return await self._port.get(url, f"{PATH}/{quote(self._cluster, safe='')}", LARGEST_ANSWER_BYTES)


def _hosts(url: str, body: bytes) -> frozenset[str]:
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, list) or len(found) > MOST_HOSTS or not all(isinstance(entry, str) for entry in found):
        raise AdminUnavailable(f"{url}: the answer is no list of at most {MOST_HOSTS} brokers")
    # An entry is host:port; a host with colons may stand in brackets.
    hosts = (entry.rpartition(":")[0].removeprefix("[").removesuffix("]").lower() for entry in found)
    return frozenset(host for host in hosts if host and len(host) <= LONGEST_HOST)
