"""Ask brokers for their memory, and for the backlog of topics, over their admin port.

Rule: answers are bounded in values, too. A broker whose metrics are refused is asked for its load report; if that is
refused as well, its memory is not known.
"""

from typing import Final
from urllib.parse import quote

from proxy.brokers.admin_port import AdminPort, AdminRefused, AdminUnavailable
from proxy.overload.bounds import LARGEST_METRICS_BYTES, LARGEST_STATS_BYTES, MOST_BACKLOGS
from proxy.overload.broker_statistics import BrokerMetrics, backlog_sample, load_report_sample
from proxy.overload.samples import BacklogSample, BrokerSample
from proxy.overload.slices import in_slices

METRICS_PATH: Final = "/admin/v2/broker-stats/metrics"
LOAD_PATH: Final = "/admin/v2/broker-stats/load-report"
_DOMAINS: Final = ("persistent", "non-persistent")


class BrokerQuestions:
    """Asks the web services at `urls`."""

    def __init__(self, urls: tuple[str, ...], port: AdminPort) -> None:
        self.urls = urls
        self._port = port
        # The web service that has told a topic's backlog, of as many topics as are asked for: the others say no, or
        # nothing for seconds.
        self._owners: dict[str, str] = {}

    async def memory(self, url: str) -> BrokerSample:
        """Return the memory of the broker at a URL; raise AdminRefused or AdminUnavailable."""
        try:
            body = await self._port.get(url, METRICS_PATH, LARGEST_METRICS_BYTES)
        except AdminRefused:
            return load_report_sample(await self._port.get(url, LOAD_PATH, LARGEST_STATS_BYTES))
        metrics = BrokerMetrics()
        await in_slices(metrics.read(body), 1)
        return metrics.sample()

    async def backlog(self, topic: str) -> BacklogSample:
        """Return the backlog of a topic; raise AdminUnavailable."""
        path, why = stats_path(topic), ""
        owner = self._owners.pop(topic, "")
        for url in sorted(self.urls, key=lambda each: each != owner):
            try:
                found = backlog_sample(await self._port.get(url, path, LARGEST_STATS_BYTES))
            except AdminUnavailable as error:
                # Its text alone: the frames of its traceback have the answer, and are kept until garbage is collected.
                why = str(error)
            else:
                if len(self._owners) >= MOST_BACKLOGS:
                    # The topic that was asked for longest ago.
                    del self._owners[next(iter(self._owners))]
                self._owners[topic] = url
                return found
        raise AdminUnavailable(why)


def stats_path(topic: str) -> str:
    """Return the path of a topic's statistics; raise AdminUnavailable for a name that is none of a topic."""
    domain, separator, name = topic.partition("://")
    if not separator:
        domain, name = "persistent", topic
    parts = name.split("/", 2)
    if domain not in _DOMAINS or len(parts) != 3 or not all(parts) or {".", ".."} & set(name.split("/")):
        raise AdminUnavailable("got no name of a topic, expected persistent://tenant/namespace/topic")
    try:
        return f"/admin/v2/{domain}/" + "/".join(quote(part, safe="") for part in parts) + "/stats"
    except UnicodeEncodeError:
        raise AdminUnavailable("the name of the topic is no text") from None
