"""What the demo records: acts, each one run of the proxy's demo, under limits that are meant to be too small."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

__all__ = ["ACTS", "LIMITS", "Act"]


@dataclass(frozen=True, slots=True)
class Act:
    """One run, or several: what it shows, and the options of the proxy's demo."""

    shows: str
    options: Mapping[str, str]
    times: int = 1


# The late tenth of the storm holds 7 MiB of direct memory, for longer than anybody waits. Heap memory is plenty: where
# it is not, answers that wait to grow hold up whole connections to the broker, which the replay does not know of.
LIMITS: Final[Mapping[str, str]] = {"heap-mb": "64", "direct-mb": "6"}
KEYS: Final[Mapping[str, str]] = {
    # The kernel would keep half a list for a client that does not read.
    "clientSocketSendBufferBytes": "16384",
    "maxTopicListInFlightHeapMemSizePermitsAcquireTimeoutMillis": "2500",
    "maxTopicListInFlightDirectMemSizePermitsAcquireTimeoutMillis": "2500",
    # The replay has neither a disk for slow readers' lists nor a share for clients that have not read yet.
    "topicListSpillDirectory": "",
    "topicListUnprovenReadersMemoryPercent": "100",
    "eventLogProxyId": "demo-proxy",
    # The same for all acts, so that a client version or a namespace is the same in all of them.
    "eventLogSalt": "the salt of the demo",
}
ACTS: Final = (
    Act(
        "a calm time: few clients, small lists",
        {"connections": "20", "requests": "1", "topics": "1000", "namespaces": "20", "slow-share": "0"},
        times=5,
    ),
    Act(
        "everybody reconnects to a namespace of his own, one in ten reads late",
        {"connections": "300", "requests": "1", "topics": "2400", "namespaces": "300", "slow-share": "0.1",
         "late-seconds": "4"},
    ),
    Act(
        "everybody reconnects to the same few namespaces: answers are shared",
        {"connections": "200", "requests": "1", "topics": "2400", "namespaces": "4", "slow-share": "0"},
    ),
)  # fmt: skip
