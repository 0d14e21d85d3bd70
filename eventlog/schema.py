"""Declarations of all fields of an event, from which JSON Schema, Spark schema and docs/reference/events.md derive.

Rules: a field is never removed, renamed or retyped. A new field is nullable and comes with the `SCHEMA_VERSION` of the
next release, which is its `since`. Readers ignore unknown fields, and set events of a later version aside. An event is
a JSON object; durations come from a monotonic clock, `ts_us` from the wall clock.
"""

from dataclasses import dataclass
from typing import Final, Literal

__all__ = [
    "CLOSE_CAUSES",
    "FAIRNESS",
    "FIELDS",
    "FIELD_NAMES",
    "KINDS",
    "OUTCOMES",
    "REQUEST_FIELDS",
    "SCHEMA_VERSION",
    "STAGES",
    "THROTTLES",
    "THROTTLE_ACTIONS",
    "THROTTLE_REASONS",
    "Field",
    "FieldType",
]

SCHEMA_VERSION: Final = 3

FieldType = Literal["string", "int16", "int32", "int64", "bool"]

KINDS: Final = ("get_topics", "watch_init", "watch_update", "throttle")
OUTCOMES: Final = ("ok", "timeout", "queue_full", "oversize", "cancelled", "upstream_error", "failed")
STAGES: Final = (
    "client",
    "group",
    "heap",
    "broker",
    "upstream",
    "heap_update",
    "read",
    "reader",
    "direct",
    "write",
)
FAIRNESS: Final = ("fifo", "connection", "principal", "tenant", "namespace")
THROTTLES: Final = ("threshold", "adaptive")
THROTTLE_ACTIONS: Final = (
    "pause",
    "resume",
    "would_pause",
    "would_resume",
    "activate",
    "adjust",
    "deactivate",
    "release",
    "would_activate",
    "would_adjust",
    "would_deactivate",
    "forget",
)
# The bits of `throttle_reasons`, from the lowest.
THROTTLE_REASONS: Final = ("memory", "brokers", "backlog")
CLOSE_CAUSES: Final = ("client_closed", "stalled", "slow", "drained", "shutdown", "admin", "error")


@dataclass(frozen=True, slots=True)
class Field:
    """A field of an event; `values` lists the values of a text, empty for any text.

    `of_throttle`: only events of throttles have it.
    """

    name: str
    type: FieldType
    unit: str
    meaning: str
    nullable: bool = False
    values: tuple[str, ...] = ()
    since: int = 1
    of_throttle: bool = False


def _text(name: str, meaning: str, *, nullable: bool = False, values: tuple[str, ...] = ()) -> Field:
    return Field(name, "string", "", meaning, nullable, values)


def _micros(name: str, meaning: str, *, nullable: bool = False) -> Field:
    return Field(name, "int64", "us", meaning, nullable)


def _bytes(name: str, meaning: str, *, nullable: bool = False) -> Field:
    return Field(name, "int64", "bytes", meaning, nullable)


def _count(name: str, unit: str, meaning: str, *, nullable: bool = False) -> Field:
    return Field(name, "int32", unit, meaning, nullable)


def _of_throttle(name: str, unit: str, meaning: str, since: int = 2) -> Field:
    return Field(name, "int64", unit, meaning, nullable=True, since=since, of_throttle=True)


def _flag(name: str, meaning: str) -> Field:
    return Field(name, "bool", "", meaning)


FIELDS: Final[tuple[Field, ...]] = (
    # The writer, and the order of its events.
    Field("schema_version", "int16", "", "Version of this schema that the event follows."),
    _text("proxy_id", "The proxy instance: `eventLogProxyId`, by default the host name."),
    _text("boot_id", "Random for each start of the process."),
    Field("cluster", "string", "", "The Pulsar cluster that the proxy serves: `clusterName`.", True, since=3),
    Field("seq", "int64", "", "Number of the event since the start; with proxy_id and boot_id it names the event."),
    _count("dropped_before", "events", "Events that were lost just before this one, because a sink could not keep up."),
    # The request and its client.
    _micros("ts_us", "When the command arrived, or the watch frame began: microseconds since 1970, UTC."),
    _text("kind", "What the event is about.", values=KINDS),
    _text("tenant", "Tenant of the namespace; for watch frames of a relay that does not know it, the empty text."),
    _text("namespace", "`tenant/namespace`; empty where tenant is."),
    _text("principal", "Who asked: a keyed hash of the role, or the role (`eventLogIdentities=plain`).", nullable=True),
    _text("client_version", "What the client said of itself in CONNECT.", nullable=True),
    _text("client_id", "The connection: a keyed hash of the client's address and port, or these.", nullable=True),
    _text("mode", "Which topics were asked for.", nullable=True, values=("PERSISTENT", "NON_PERSISTENT", "ALL")),
    _text("pattern_hash", "Hash of the topics pattern, never the pattern; null without one.", nullable=True),
    _text("broker", "Broker that was asked, as host:port.", nullable=True),
    _text("question_hash", "Hash of all that equal requests share; null for watch frames and HTTP.", nullable=True),
    # The group that shared an answer.
    Field("group_id", "int64", "", "Number, since the start, of the group that shared one question.", nullable=True),
    _count("group_size", "requests", "Members that the group has had; null for watch frames.", nullable=True),
    _flag("carries_cost", "The event carries the cost of its group: true for exactly one of each, the last to end."),
    _flag("coalesced", "The request shared the question of another."),
    # Sizes.
    _count("topic_count", "topics", "Topics in the list; names added, for watch frames null.", nullable=True),
    _bytes("name_bytes", "Sum of the lengths of the names.", nullable=True),
    _bytes("response_bytes", "The frame that was sent to the client.", nullable=True),
    _bytes("heap_estimate_bytes", "Heap memory asked for before the size was known; null if never.", nullable=True),
    _bytes("heap_actual_bytes", "Heap memory the answer needed; null if it was never known.", nullable=True),
    _bytes("direct_bytes", "Direct memory asked for; null if it was never asked for.", nullable=True),
    # Durations of the stages: each stage begins where the previous ended, so their sum is the life of the request.
    _micros("client_wait_us", "Waited behind earlier requests of its own connection before it was looked at."),
    _micros("group_wait_us", "Waited for the answer to the equal question before it."),
    _micros("heap_wait_us", "Waited for heap memory for the estimate, in its broker's line and in the common one."),
    _micros("broker_wait_us", "Waited for a free question slot and a connection.", nullable=True),
    _micros("upstream_us", "From the question being written to the answer beginning.", nullable=True),
    _micros("heap_update_wait_us", "Waited for heap memory to grow to the size of the answer."),
    _micros("read_us", "From there to the whole answer being read and decoded.", nullable=True),
    _micros("reader_wait_us", "Waited for a client that could take the list.", nullable=True),
    _micros("direct_wait_us", "Waited for direct memory."),
    _micros("write_us", "From having direct memory to the last byte leaving, for this member.", nullable=True),
    _micros("total_us", "From arrival to the end."),
    _micros("heap_held_us", "How long the group held heap memory; null without `carries_cost`.", nullable=True),
    _micros("direct_held_us", "The same for direct memory, of a watch frame too.", nullable=True),
    Field("heap_byte_us", "int64", "bytes*us", "Sum of heap memory times the time it was booked; null as above.", True),
    Field("direct_byte_us", "int64", "bytes*us", "The same for direct memory, of a watch frame too.", True),
    # State of the limiters when the request arrived, and the configuration.
    _count("heap_queue_len", "requests", "Requests that waited for heap memory on arrival."),
    _count("direct_queue_len", "requests", "Requests that waited for direct memory on arrival."),
    _bytes("heap_used_bytes", "Heap memory in use on arrival."),
    _bytes("direct_used_bytes", "Direct memory in use on arrival."),
    _bytes("heap_limit_bytes", "Limit in force; 0 is none."),
    _bytes("direct_limit_bytes", "Limit in force; 0 is none."),
    _count("heap_queue_max", "requests", "Longest queue in force; 0 is no bound."),
    _count("direct_queue_max", "requests", "Longest queue in force; 0 is no bound."),
    _count("heap_timeout_ms", "ms", "Longest wait for heap memory in force."),
    _count("direct_timeout_ms", "ms", "Longest wait for direct memory in force."),
    _count("request_timeout_ms", "ms", "Clock over all waits of a request in force."),
    _count("max_outstanding_per_broker", "requests", "Questions to one broker at a time in force."),
    _text("fairness", "Between whom memory was shared.", values=FAIRNESS),
    _count("key_cap_percent", "%", "Most of each limit that one key may be let in with."),
    _flag("coalescing", "Equal requests shared answers."),
    Field("unproven_readers_percent", "int32", "%", "Most of direct memory for clients that have not shown that they"
          " read.", True, since=3),
    Field("spill_limit_bytes", "int64", "bytes", "Room on disk for the lists of slow readers; 0 is no disk.", True,
          since=3),
    # The end of the request.
    _text("outcome", "How the request ended for its client.", values=OUTCOMES),
    _text("outcome_stage", "Where it stood when it did not end well.", nullable=True, values=STAGES),
    _micros("cancelled_after_us", "From arrival to the client's socket closing; null if it did not.", nullable=True),
    _text("close_cause", "Why the connection ended before the answer did.", nullable=True, values=CLOSE_CAUSES),
    _flag("filtered", "The broker had applied the pattern."),
    _flag("hash_unchanged", "The client knew the list already: the answer held no names."),
    # Decisions of overload control, null or absent in events of other kinds.
    Field("throttle_by", "string", "", "The throttle that decided.", True, THROTTLES, 2, True),
    Field("throttle_action", "string", "", "What it did, or would have done in ObserveOnly.", True, THROTTLE_ACTIONS,
          2, True),
    Field("throttle_topic", "string", "", "The topic whose rate it is; null for connections.", True, (), 2, True),
    _of_throttle("throttle_connections", "connections", "Connections that were paused or released together."),
    _of_throttle("throttle_ratio_permille", "1/1000", "Memory in use as a part of its limit; null if not known."),
    _of_throttle("throttle_pressure_permille", "1/1000", "Pressure that the topic is slowed for, 0 to 1000."),
    _of_throttle("memory_used_bytes", "bytes", "Memory in use that cannot be reclaimed."),
    _of_throttle("memory_limit_bytes", "bytes", "The limit that it is compared with."),
    _of_throttle("natural_bytes_per_second", "bytes/s", "What the topic sends when nobody slows it."),
    _of_throttle("natural_messages_per_second", "messages/s", "The same in messages."),
    _of_throttle("allowed_bytes_per_second", "bytes/s", "What the topic may send from now on; null is no limit."),
    _of_throttle("allowed_messages_per_second", "messages/s", "The same in messages."),
    _of_throttle("throttle_reasons", "bits", "Why producers are slowed: 1 for the proxy's memory, 2 for the brokers'"
                 " memory, 4 for the topic's backlog, added up; 0 if nothing presses any more.", since=3),
    _of_throttle("throttle_paused", "connections", "Connections that are not read after this decision, or would not"
                 " be; null for topics.", since=3),
    _of_throttle("throttle_forgotten", "topics", "Topics that were forgotten (`forget`): nobody has sent to them for"
                 " six minutes.", since=3),
)  # fmt: skip

# What events of requests and watch frames have, each in this order.
REQUEST_FIELDS: Final[tuple[Field, ...]] = tuple(field for field in FIELDS if not field.of_throttle)
FIELD_NAMES: Final[tuple[str, ...]] = tuple(field.name for field in FIELDS)
