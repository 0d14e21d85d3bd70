"""/proxy-stats: relayed connections, rates of topics and the two log levels, with paths and fields of Pulsar's proxy.

Rule: off with `enableProxyStatsEndpoints=false`. The pages show only numbers that the proxy keeps anyway. Pulsar's
proxy computes its rates once, a minute after a connection began; these rates cover about the last half minute.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Final

from proxy.core.log import LEVELS
from proxy.relay.engine import Relay
from proxy.relay.relay_log import LEVELS as PROXY_LOG_LEVELS
from proxy.relay.relay_log import TOPICS, RelayLog
from proxy.web.http.documents import Answer, Document, JsonRows

CONNECTIONS: Final = "/proxy-stats/connections"
TOPIC_RATES: Final = "/proxy-stats/topics"
LOGGING: Final = "/proxy-stats/logging"
LOGGING_LEVEL: Final = "/proxy-stats/logging/{level}"
# The list of relays is copied in one step of the loop: more relays than this would delay Pulsar traffic.
MOST_CONNECTIONS: Final = 20_000


@dataclass(frozen=True, slots=True)
class StatsSources:
    """The parts that the documents show and change; `change` sets a dynamic key, and raises ConfigError."""

    relays: Callable[[], Iterable[Relay]]
    relay_log: RelayLog
    change: Callable[[str, str], None]


def stats_documents(sources: StatsSources) -> tuple[Document, ...]:
    """Return the documents below /proxy-stats."""

    def connections(_: Mapping[str, str]) -> Answer:
        # A list, because relays come and go between the slices.
        return Answer(200, JsonRows(map(_connection, list(islice(sources.relays(), MOST_CONNECTIONS)))))

    def topics(_: Mapping[str, str]) -> Answer:
        if sources.relay_log.level < TOPICS:
            return Answer(412, {"reason": "rates of topics need proxyLogLevel=2"})
        return Answer(200, sources.relay_log.rates.document())

    def logging(_: Mapping[str, str]) -> Answer:
        return Answer(200, sources.relay_log.level)

    def set_logging(parts: Mapping[str, str]) -> Answer:
        level = parts["level"]
        if level in LEVELS:
            sources.change("logLevel", level)
            return Answer(200, {"logLevel": level})
        if level not in map(str, PROXY_LOG_LEVELS):
            return Answer(412, {"reason": "expected a proxyLogLevel from 0 to 2, or a logLevel by its name"})
        sources.change("proxyLogLevel", level)
        return Answer(204, None)

    return (
        Document(
            "GET", CONNECTIONS, connections, "Relayed clients: both addresses, and the rates at which clients send.",
            better="the rates cover about the last half minute; upstream computes them once",
        ),
        Document(
            "GET", TOPIC_RATES, topics, "Rates of messages and bytes by topic; 412 unless proxyLogLevel is 2.",
            better="a bounded table that forgets silent topics; rates of the last ten seconds",
        ),
        Document("GET", LOGGING, logging, "The proxyLogLevel in force."),
        Document(
            "POST", LOGGING_LEVEL, set_logging, "Change proxyLogLevel (0 to 2) for new connections.",
            better="the name of a logLevel changes logLevel",
        ),
    )  # fmt: skip


def _connection(relay: Relay) -> Mapping[str, object]:
    return {
        "requestRate": relay.traffic.rates.reads,
        "byteRate": relay.traffic.rates.size_bytes,
        "clientAddress": _address(relay.client_name),
        "brokerAddress": _address(relay.broker_name),
    }


def _address(name: str) -> str:
    # Java prints an address that was not resolved from a name with a leading slash.
    return f"/{name}"
