"""Keys that are no more: a file that sets one to what the proxy does anyway still works, for one version.

Rule: any other value is an error, which names what to do instead, with or without `--strict`.
"""

import re
from typing import Final, NamedTuple


class RetiredKey(NamedTuple):
    """`kept`: the values that say what the proxy does anyway; `instead`: what it does, or what to do for any other."""

    kept: tuple[str, ...]
    instead: str

    def keeps(self, text: str) -> bool:
        """Return whether a value says what the proxy does anyway; numbers may be written in another way: 0.950."""
        text = text.strip().lower()
        return text in self.kept or _plain(text) in map(_plain, filter(str.strip, self.kept))


def _plain(text: str) -> str:
    """Return the shortest text of a number as 0.1.0 took it, and any other text as it is."""
    found = re.fullmatch(r"0*([0-9]+?)(?:\.([0-9]*?)0*)?", text, re.A)
    return text if found is None else f"{found[1]}.{found[2] or ''}"


def _always(value: str, instead: str, *, charts: str = "") -> RetiredKey:
    """Return a key whose default is a constant now; a blank stood for the default.

    `charts`: what a chart of 0.1.0 set by itself. No operator has chosen that, so the rule in its place may differ.
    """
    return RetiredKey(("", charts, value) if charts else ("", value), instead)


RETIRED: Final = {
    "relayEngine": RetiredKey(
        ("", "auto", "native"),
        "the native extension moves all relays; a proxy that does without it starts with --without-extension",
    ),
    "tcpKeepAliveIdleSeconds": _always(
        "60", "TCP probes begin after 60 s of silence, PINGs after keepAliveIntervalSeconds"
    ),
    "tcpKeepAliveIntervalSeconds": _always("10", "TCP probes are 10 s apart"),
    "tcpKeepAliveProbes": _always("3", "three TCP probes without an answer end a connection"),
    "brokerProbeIntervalMillis": _always("500", "probes of a broker that is down are at most 500 ms apart"),
    "maxHttpTunnelsPercent": _always("50", "half of maxHttpServerConnections may be WebSockets"),
    "topicListInitialHeapPermitBytes": _always("1024", "a list of unknown size begins with 1024 bytes"),
    "overloadMemoryHardWatermark": _always("0.95", "overloadMaxPauseMillis ends no pause above 0.95 of the limit"),
    "publishThrottleMaxPauseMillis": _always(
        "5000", "a connection that waits for the rate of a topic passes one frame after 5 s"
    ),
    "relayClientReceiveBufferBytes": _always(
        "1048576", "clients' receive buffers are 1 MiB while a throttle acts, and relaySocketMemoryMB bounds all"
    ),
    "connectionLogMaxLinesPerSecond": _always(
        "100", "at most 100 lines are written a second; connectionLogPercent chooses among connections"
    ),
    "eventLogFileMaxSizeMB": _always(
        "64", "a file has 64 MiB, or a quarter of eventLogFilesMaxTotalMB if that is less"
    ),
    "eventLogFlushMillis": _always("1000", "an event waits for others for 1 s at most"),
    "acceptBacklog": _always("4096", "4096 connections wait to be accepted, or net.core.somaxconn"),
    "adaptivePublisherThrottlingSharesByBytes": _always(
        "false", "memory cuts the rates of all topics by the same part; adaptivePublisherThrottlingTopics chooses which"
    ),
    "maxOutstandingRequestsPerConnection": _always(
        "1000", "a connection has at most 1000 requests in progress; maxConcurrentLookupRequests bounds those of all"
    ),
    "maxUnansweredCommandsPerSecond": _always(
        "1000", "1000 commands a second that nobody answers are read of a connection"
    ),
    "brokerConnectionIdleMillis": _always("60000", "a connection for requests that nobody uses ends after 60 s"),
    "watchTopicListMaxPauseMillis": _always(
        "1000",
        "a frame for a watcher waits 1 s for memory at most; watchTopicListLimitEnabled=false lets all pass",
    ),
    "brokerConnectionsPerKey": _always(
        "2", "a role has at most 2 connections for a purpose at each broker; brokerConnectionsTotal bounds them all"
    ),
    "adaptivePublisherThrottlingExceptTopics": RetiredKey(
        ("",), "a pattern behind ! in adaptivePublisherThrottlingTopics spares topics, such as *,!persistent://shop/*"
    ),
    "eventLogTopicWebServiceURL": RetiredKey(
        ("",), "only brokers in brokerWebServiceURL are asked whether they keep events, not those of another cluster"
    ),
    "brokerSocketReceiveMemoryMB": RetiredKey(
        ("", "0", "-1"),
        "each request connection has its receive buffer from its start; brokerConnectionsTotal bounds them",
    ),
    "brokerSocketReceiveBufferBytes": _always(
        "1048576",
        "receive buffers of request connections are up to four times clientSocketSendBufferBytes",
        charts="262144",
    ),
    "topicListBrokerAnswerTimeoutMillis": _always(
        "30000", "a broker has 30 s to answer, or topicListRequestTimeoutMillis if that is more"
    ),
    "overloadSampleMillis": _always("500", "memory is looked at each 500 ms while a throttle is enabled"),
    "overloadDripMillis": _always(
        "5000", "a paused connection passes a frame each quarter of overloadMaxPauseMillis, 5 s at most"
    ),
    "maxHandshakeInFlightMemSizeMB": _always(
        "16", "large CONNECT commands have an eighth of maxTopicListInFlightDirectMemSizeMB, beside it", charts="4"
    ),
    "webServicePageReuseMillis": _always("1000", "clients share the content of the proxy's own pages for 1 s"),
    "eventLogFileMaxAgeMillis": _always("60000", "a file is finished after 60 s at the latest"),
    "relayReceiveBufferBytes": _always("0", "relaySocketMemoryMB bounds what the kernel keeps for all relays"),
}
