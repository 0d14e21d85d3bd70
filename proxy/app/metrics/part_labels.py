"""The label `owner` of each part of the memory budget: one word, which stays when the text for people changes.

Until the release after 0.1.0 the metrics have that text too, as the label `part`: dashboards and alerts may ask for it.
"""

from collections.abc import Mapping
from typing import Final

PART_LABELS: Final[Mapping[str, str]] = {
    "process at rest": "process",
    "export of metrics": "metrics_export",
    "decoded topic lists": "decoded_lists",
    "encoded topic lists": "encoded_lists",
    "slack of the two": "lists_slack",
    "lists to and from disk": "spill_lists",
    "page cache and files of lists on disk": "spill_files",
    "one answer over each limit": "answer_overshoot",
    "connections at rest": "connections",
    "unfinished frames, unread answers": "unfinished_frames",
    "large frames before CONNECTED": "handshake_frames",
    "large questions": "large_questions",
    "one large frame over its limit": "frame_overshoot",
    "books of writers": "writers",
    "TLS connections": "tls_connections",
    "TLS of the relay threads": "relay_threads_tls",
    "kernel send buffers": "send_buffers",
    "large kernel send buffers": "large_send_buffers",
    "relays, both directions stalled": "stalled_relays",
    "relay pool": "relay_pool",
    "kernel memory of relayed sockets": "relay_sockets",
    "ended connections, unsent bytes": "ended_connections",
    "credentials to forward": "forwarded_credentials",
    "broker connections": "broker_connections",
    "relayed commands that are shown": "relay_log",
    "requests under way": "requests",
    "topic lists that wait for their turn": "waiting_lists",
    "queues": "queues",
    "keys that owe": "fairness_debts",
    "connections of the web ports": "web_connections",
    "connections of metricsPort": "metrics_connections",
    "TLS of the web ports": "web_tls",
    "requests passed on": "web_requests",
    "TLS of requests passed on": "web_requests_tls",
    "open WebSockets": "web_sockets",
    "TLS of open WebSockets": "web_sockets_tls",
    "askers of the admin API": "admin_clients",
    "topics of the adaptive throttle": "throttle_topics",
    "paused connections": "paused_connections",
    "statistics of brokers": "broker_statistics",
    "event log, files": "events_files",
    "event log, topic": "events_topic",
    "event log, names": "events_names",
    "unsent bytes of relays": "relay_unsent",
    "received bytes of relays, from brokers": "relay_received_from_brokers",
    "received bytes of relays, from clients": "relay_received_from_clients",
}


def part_labels(part: str) -> tuple[str, str]:
    """Return the labels `owner` and `part` of a part of the budget."""
    return PART_LABELS.get(part) or word(part), part


def word(text: str) -> str:
    """Return a text as one word, for a label."""
    return "_".join("".join(char if char.isalnum() else " " for char in text).lower().split())
