"""Own requests to the proxy's web port, made by hand, and the samples read out of its metrics page.

Rule: one request a connection, so that nothing of a test stays open in the proxy. Metrics are read by the parser of
prometheus_client, not by ours.
"""

import asyncio
from typing import NamedTuple

from prometheus_client.parser import text_string_to_metric_families

from tests.support.clients.async_client import LOOPBACK
from tests.support.patience import in_time

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


class Page(NamedTuple):
    """What the web port answered."""

    status: int
    headers: dict[str, str]
    text: str


async def raw(port: int, request: bytes, at: str = LOOPBACK) -> bytes:
    """Send bytes, and give everything until the end of the connection."""
    async with in_time():
        reader, writer = await asyncio.open_connection(at, port)
        try:
            writer.write(request)
            return await reader.read()
        finally:
            writer.close()
            await writer.wait_closed()


async def get(
    port: int, path: str, method: str = "GET", *headers: str, host: str = LOOPBACK, at: str = LOOPBACK
) -> Page:
    """Get one page."""
    fields = (f"Host: {host}", "Content-Length: 0", "Connection: close", *headers)
    answer = await raw(port, "\r\n".join([f"{method} {path} HTTP/1.1", *fields, "\r\n"]).encode(), at)
    head, _, body = answer.decode().partition("\r\n\r\n")
    status, *lines = head.split("\r\n")
    found = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
    return Page(int(status.split(" ")[1]), found, body)


class Scrape:
    """The samples of one scrape, found by name and labels; the `cluster` label is checked and left out."""

    def __init__(self, text: str, cluster: str) -> None:
        self.samples: Samples = {}
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                assert sample.labels.get("cluster") == cluster, sample
                labels = frozenset(item for item in sample.labels.items() if item[0] != "cluster")
                key = (sample.name, labels)
                assert key not in self.samples, f"{sample} twice"
                self.samples[key] = sample.value

    def __call__(self, name: str, **labels: str) -> float:
        """Give the value of one sample of the proxy, its name without `pulsar_proxy_`."""
        return self.samples[(f"pulsar_proxy_{name}", frozenset(labels.items()))]

    def family(self, prefix: str) -> Samples:
        """Give all samples whose names begin so."""
        return {key: value for key, value in self.samples.items() if key[0].startswith(prefix)}


async def scrape(port: int, cluster: str = "test") -> Scrape:
    """Get the metrics."""
    page = await get(port, "/metrics")
    assert page.status == 200, page
    return Scrape(page.text, cluster)
