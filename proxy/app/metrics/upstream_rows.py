"""The rows of metrics that upstream's proxy has too: PIP-442's and the older ones.

Rule: names, labels and kinds are exactly upstream's, because existing dashboards and alerts query them.
"""

from typing import Final

from protocol.command_type import CommandType
from proxy.app.metrics.reading import Metric
from proxy.auth import authenticator
from proxy.clients import listener, services, sessions
from proxy.clients.requests import ASKED, REJECTED
from proxy.core.counters import BINARY_BYTES
from proxy.requests.topic_lists.memory_metrics import PIP_442

__all__ = ["UPSTREAM_ROWS"]


UPSTREAM_ROWS: Final[tuple[Metric, ...]] = (
    *PIP_442,

    sessions.ACTIVE,
    sessions.ACCEPTED,
    listener.REJECTED,
    services.BINARY_OPS,
    BINARY_BYTES,
    ASKED[CommandType.LOOKUP],
    ASKED[CommandType.PARTITIONED_METADATA],
    ASKED[CommandType.GET_TOPICS_OF_NAMESPACE],
    ASKED[CommandType.GET_SCHEMA],
    *REJECTED.values(),

    authenticator.SUCCESSES,
    authenticator.FAILURES,
    authenticator.EXPIRED,
)  # fmt: skip
