"""The events of one chunk, as an Arrow table with every field of the event schema, in the order in which they end.

Rule: `seq` counts the events of a proxy over all its chunks without a gap, and what an event says of itself agrees:
parts of its life add up, what was never reached is null, one member of each group carries the group's cost.
"""

from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from benchmarks.pipeline.generate.arrivals import arrivals, random_of
from benchmarks.pipeline.generate.population import MODES, NO_PATTERN, VERSIONS, Population, population
from benchmarks.pipeline.generate.settings import CHUNK_EVENTS, Chunk, GenerateSettings
from benchmarks.pipeline.generate.timeline import (
    BROKER,
    DIRECT,
    GROUP,
    HEAP,
    HEAP_UPDATE,
    READ,
    READER,
    UPSTREAM,
    WRITE,
    Groups,
    Members,
    follow,
)
from eventlog.schema import FIELDS, SCHEMA_VERSION
from pipeline.core.model import Outcome

__all__ = ["ARROW_SCHEMA", "boot_id", "chunk_events", "proxy_id"]

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Columns = dict[str, pa.Array]

_TYPES: Final = {
    "string": pa.string(),
    "int16": pa.int16(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "bool": pa.bool_(),
}
ARROW_SCHEMA: Final = pa.schema([pa.field(field.name, _TYPES[field.type]) for field in FIELDS])
STAGE_OF: Final = ("group", "heap", "broker", "upstream", "heap_update", "upstream", "reader", "direct", "write")
PART_OF: Final = {
    GROUP: "group_wait_us",
    HEAP: "heap_wait_us",
    BROKER: "broker_wait_us",
    UPSTREAM: "upstream_us",
    HEAP_UPDATE: "heap_update_wait_us",
    READ: "read_us",
    READER: "reader_wait_us",
    DIRECT: "direct_wait_us",
    WRITE: "write_us",
}
CLUSTER: Final = "synthetic"
NULLABLE: Final = {field.name for field in FIELDS if field.nullable}
NAME_OF: Final = {
    Outcome.OK: "ok",
    Outcome.TIMEOUT_HEAP: "timeout",
    Outcome.TIMEOUT_HEAP_UPDATE: "timeout",
    Outcome.TIMEOUT_DIRECT: "timeout",
    Outcome.TIMEOUT_OTHER: "timeout",
    Outcome.QUEUE_FULL_HEAP: "queue_full",
    Outcome.QUEUE_FULL_DIRECT: "queue_full",
    Outcome.OVERSIZE: "oversize",
    Outcome.CANCELLED: "cancelled",
    Outcome.FAILED: "upstream_error",
}


def proxy_id(proxy: int) -> str:
    """Return the name of a proxy of the synthetic fleet."""
    return f"proxy-{proxy}"


def boot_id(settings: GenerateSettings, proxy: int) -> str:
    """Return the name of a proxy's only start: 16 hexadecimal digits, as in the names of event files."""
    return f"{settings.seed & 0xFFFFFFFF:08x}{proxy:08x}"


def chunk_events(settings: GenerateSettings, chunk: Chunk) -> pa.Table:
    """Make the events of a chunk; the same settings and chunk give the same, on any machine."""
    people = population(settings)
    watched = int(chunk.events * settings.watch_share)
    rng = random_of(settings, chunk, 2)
    parts = []
    if lists := chunk.events - watched:
        groups, members = follow(settings, people, arrivals(settings, chunk, people, lists), rng)
        parts.append(_lists(settings, chunk, people, groups, members))
    if watched:
        parts.append(_watch_frames(settings, chunk, people, watched, rng))
    whole = [_common(settings, chunk, part) for part in parts]
    events = pa.concat_tables(whole)
    ended = np.asarray(events["ts_us"]) + np.asarray(events["total_us"])
    events = events.take(pa.array(np.argsort(ended, kind="stable")))
    seq = pa.array(np.arange(events.num_rows, dtype=np.int64) + chunk.slice * CHUNK_EVENTS)
    return events.set_column(events.schema.get_field_index("seq"), ARROW_SCHEMA.field("seq"), seq)


def _lists(settings: GenerateSettings, chunk: Chunk, people: Population, groups: Groups, members: Members) -> Columns:
    group = members.group
    reached, parts = _parts(groups, members)
    outcome = np.where(members.left, Outcome.CANCELLED, groups.outcome[group])
    # A request that finds the queue full is refused within the microsecond.
    reached[HEAP] |= outcome == Outcome.QUEUE_FULL_HEAP
    well = outcome == Outcome.OK
    question = groups.question[group]
    answered = reached[READ] & ~np.isin(groups.outcome[group], (Outcome.FAILED, Outcome.OVERSIZE))
    names = np.where(groups.unchanged, 0, people.topics_of[people.namespace_of[groups.question]])[group]
    lengths = people.name_length_of[people.namespace_of[question]]
    bad_stage = pa.array(np.array(STAGE_OF, dtype=object)[np.minimum(reached.sum(axis=0) - 1, WRITE)], mask=well)
    client_left = members.end_us - members.at_us
    return (
        _who(people, question, members.client)
        | parts
        | _costs(groups, members, parts)
        | _arrival_state(groups, members)
        | {
            "ts_us": pa.array(members.at_us + chunk.begin_us),
            "kind": _repeat("get_topics", len(group)),
            "topic_count": pa.array(names.astype(np.int32), mask=~answered),
            "name_bytes": pa.array(names * lengths, mask=~answered),
            "response_bytes": pa.array(groups.direct_bytes[group], mask=~well),
            "heap_estimate_bytes": pa.array(groups.estimate_bytes[group], mask=~reached[HEAP]),
            "heap_actual_bytes": pa.array(groups.heap_bytes[group], mask=~(answered | (outcome == Outcome.OVERSIZE))),
            "direct_bytes": pa.array(groups.direct_bytes[group], mask=~(reached[DIRECT] & answered)),
            "client_wait_us": pa.array(members.looked_us - members.at_us),
            "total_us": pa.array(members.end_us - members.at_us),
            "group_id": pa.array(group + chunk.slice * CHUNK_EVENTS),
            "outcome": _named(np.vectorize(NAME_OF.get, otypes=[object])(outcome)),
            "outcome_stage": bad_stage.cast(pa.string()),
            "cancelled_after_us": pa.array(client_left, mask=~members.left),
            "close_cause": pa.array(np.full(len(group), "client_closed", dtype=object), mask=~members.left),
            "filtered": pa.array((people.pattern_of[question] != NO_PATTERN) & well),
            "hash_unchanged": pa.array(groups.unchanged[group] & well),
        }
    )


def _parts(groups: Groups, members: Members) -> tuple[Bools, Columns]:
    """Cut each life into its parts; also say which stages each request reached."""
    count = len(members.group)
    reached = np.zeros((WRITE + 1, count), dtype=np.bool_)
    begins, found = members.looked_us, {}
    for stage, name in PART_OF.items():
        until = members.end_us if stage == WRITE else groups.ends[stage][members.group]
        ends = np.clip(until, begins, members.end_us)
        # A stage that began when the request was over was not reached; the first stage always is.
        reached[stage] = (begins < members.end_us) | (stage == GROUP)
        found[name] = pa.array(ends - begins, mask=~reached[stage] if name in NULLABLE else None)
        begins = ends
    return reached, found


def _costs(groups: Groups, members: Members, parts: Columns) -> Columns:
    """Assign the cost of each group to its member that ended last."""
    count, sizes = len(members.group), np.diff(np.append(groups.first, len(members.group)))
    by_end = np.lexsort((members.end_us, members.group))
    last = by_end[groups.first + sizes - 1]
    carries = np.zeros(count, dtype=np.bool_)
    carries[last] = True
    over = members.end_us[last]
    granted, grown, released = (np.minimum(groups.ends[stage], over) for stage in (HEAP, HEAP_UPDATE, DIRECT))
    refused = np.isin(groups.outcome, (Outcome.TIMEOUT_HEAP, Outcome.QUEUE_FULL_HEAP))
    heap_held = np.where(refused, 0, released - granted)
    byte_us = groups.estimate_bytes * (grown - granted) + groups.heap_bytes * (released - grown)
    direct_held = np.where(groups.outcome == Outcome.OK, over - released, 0)

    def of_carriers(values: Ints) -> pa.Array:
        spread = np.zeros(count, dtype=np.int64)
        spread[last] = values
        return pa.array(spread, mask=~carries)

    return {
        "group_size": pa.array(sizes[members.group].astype(np.int32)),
        "coalesced": pa.array(~np.isin(np.arange(count), groups.first)),
        "carries_cost": pa.array(carries),
        "heap_held_us": of_carriers(heap_held),
        "heap_byte_us": of_carriers(np.where(refused, 0, byte_us)),
        "direct_held_us": of_carriers(direct_held),
        "direct_byte_us": of_carriers(groups.direct_bytes * direct_held),
    }


def _arrival_state(groups: Groups, members: Members) -> Columns:
    """Return what each request found when it arrived: sums over the groups that were under way then.

    Heap memory is booked for the estimate first, and for the answer from when that could grow.
    """
    at, ends = members.at_us, groups.ends
    last_end = np.maximum.reduceat(members.end_us, groups.first)
    waits_heap, waits_direct = ends[HEAP] > ends[GROUP], ends[DIRECT] > ends[READER]
    held = np.minimum(ends[DIRECT], last_end)
    granted, grown = (np.minimum(ends[stage], held) for stage in (HEAP, HEAP_UPDATE))
    estimates = _under_way(at, granted, grown, groups.estimate_bytes)
    return {
        "heap_used_bytes": pa.array(estimates + _under_way(at, grown, held, groups.heap_bytes)),
        "direct_used_bytes": pa.array(
            _under_way(at, held, last_end, np.where(groups.outcome == Outcome.OK, groups.direct_bytes, 0))
        ),
        "heap_queue_len": pa.array(
            _under_way(at, ends[GROUP], ends[HEAP], waits_heap.astype(np.int64)).astype(np.int32)
        ),
        "direct_queue_len": pa.array(
            _under_way(at, ends[READER], ends[DIRECT], waits_direct.astype(np.int64)).astype(np.int32)
        ),
    }


def _under_way(at: Ints, begins: Ints, ends: Ints, weights: Ints) -> Ints:
    """Sum the weights of the intervals [begin, end) that hold each instant."""
    total = np.zeros(len(at), dtype=np.int64)
    for edges, sign in ((begins, 1), (ends, -1)):
        order = np.argsort(edges, kind="stable")
        sums = np.concatenate([[0], np.cumsum(weights[order])])
        total += sign * sums[np.searchsorted(edges[order], at, side="right")]
    return np.maximum(total, 0)


def _watch_frames(
    settings: GenerateSettings, chunk: Chunk, people: Population, count: int, rng: np.random.Generator
) -> Columns:
    client = rng.integers(0, settings.clients, count)
    question = people.question_of[client]
    size = rng.integers(100, 20_000, count)
    waits = np.where(rng.random(count) < 0.02, rng.exponential(20_000, count), 0).astype(np.int64)
    write = size // 400 + rng.integers(20, 200, count)
    zeros = np.zeros(count, dtype=np.int64)
    every: Columns = {name: pa.array(zeros) for name in PART_OF.values() if name not in NULLABLE}
    return (
        every
        | {name: column for name, column in _who(people, question, client).items() if name not in _ONLY_LISTS}
        | {
            "ts_us": pa.array(rng.integers(0, chunk.span_us, count) + chunk.begin_us),
            "kind": _named(np.where(rng.random(count) < 0.2, "watch_init", "watch_update").astype(object)),
            "name_bytes": pa.array(size * 9 // 10),
            "response_bytes": pa.array(size),
            "direct_bytes": pa.array(size),
            "client_wait_us": pa.array(zeros),
            "direct_wait_us": pa.array(waits),
            "write_us": pa.array(write),
            "total_us": pa.array(waits + write),
            "direct_held_us": pa.array(write),
            "direct_byte_us": pa.array(size * write),
            "carries_cost": _repeat(True, count),
            "outcome": _repeat("ok", count),
        }
    )


_ONLY_LISTS: Final = ("mode", "pattern_hash", "question_hash")


def _who(people: Population, question: Ints, client: Ints) -> Columns:
    namespace = people.namespace_of[question]
    pattern = people.pattern_of[question]
    return {
        "tenant": people.tenants.take(pa.array(people.tenant_of[namespace])),
        "namespace": people.namespaces.take(pa.array(namespace)),
        "principal": people.principals.take(pa.array(people.principal_of[question])),
        "client_version": pa.array(VERSIONS).take(pa.array(people.version_of[client])),
        "client_id": people.client_names.take(pa.array(client)),
        "mode": pa.array(MODES).take(pa.array(people.mode_of[question])),
        "pattern_hash": people.patterns.take(pa.array(pattern, mask=pattern == NO_PATTERN)),
        "broker": people.brokers.take(pa.array(people.broker_of[namespace])),
        "question_hash": people.question_names.take(pa.array(question)),
    }


def _common(settings: GenerateSettings, chunk: Chunk, columns: Columns) -> pa.Table:
    """Add what is the same for all events of a chunk, and null or nothing for what a kind does not have."""
    count, limits = len(columns["ts_us"]), settings.limits
    same = {
        "schema_version": SCHEMA_VERSION,
        "proxy_id": proxy_id(chunk.proxy),
        "boot_id": boot_id(settings, chunk.proxy),
        "heap_limit_bytes": limits.heap_bytes,
        "direct_limit_bytes": limits.direct_bytes,
        "heap_queue_max": limits.heap_queue,
        "direct_queue_max": limits.direct_queue,
        "heap_timeout_ms": limits.heap_timeout_us // 1000,
        "direct_timeout_ms": limits.direct_timeout_us // 1000,
        "request_timeout_ms": limits.request_timeout_us // 1000,
        "max_outstanding_per_broker": limits.max_outstanding_per_broker,
        "fairness": limits.fairness,
        "key_cap_percent": limits.key_cap_percent,
        "coalescing": limits.coalescing,
        "cluster": CLUSTER,
        "unproven_readers_percent": 100,
        "spill_limit_bytes": 0,
    }
    arrays = []
    for field in ARROW_SCHEMA:
        nothing = None if field.name in NULLABLE else {pa.bool_(): False, pa.string(): ""}.get(field.type, 0)
        found = columns.get(field.name)
        arrays.append(_repeat(same.get(field.name, nothing), count, field.type) if found is None else found)
    return pa.Table.from_arrays(
        [column.cast(field.type) for column, field in zip(arrays, ARROW_SCHEMA, strict=True)], schema=ARROW_SCHEMA
    )


def _repeat(value: object, count: int, of: pa.DataType | None = None) -> pa.Array:
    return pa.nulls(count, of) if value is None else pa.repeat(pa.scalar(value, of), count)


def _named(names: NDArray[np.object_]) -> pa.Array:
    return pa.array(names, type=pa.string())
