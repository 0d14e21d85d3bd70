"""A trace as the kernel reads it, prepared once for any number of limits; and the empty books for one replay."""

from dataclasses import dataclass

import numpy as np

from pipeline.core.model import GRANTS_AT_ONCE, MOST_IDLE_DEBTORS, QUANTA_PER_LIMIT, Int32s, Limits, Trace
from pipeline.replay import layout as L
from pipeline.replay.compiled import Ints

NO_CAP = 1 << 62
GATE, HEAP, SLOT, DIRECT = range(4)  # the order of a group's permits and of a request's keys
MOST_REQUESTS = 1 << (62 - L.ORDER_SHIFT - 2)  # each begins up to three events, whose order has so many bits


@dataclass(frozen=True, slots=True)
class Prepared:
    """A trace, checked, with the needs of each request side by side, and how many there are of what."""

    trace: Trace
    needs: Ints
    clients: int
    questions: int
    brokers: int
    keys: int
    keys_of_brokers: Ints  # where the keys of each broker begin, and the end

    @classmethod
    def of(cls, trace: "Trace | Prepared") -> "Prepared":
        """Prepare a trace, unless it is; raises ValueError for what is none."""
        if isinstance(trace, Prepared):
            return trace
        trace.check()
        if len(trace) > MOST_REQUESTS:
            raise ValueError(f"expected at most {MOST_REQUESTS} requests in one trace, got {len(trace)}")
        brokers, keys = _count(trace.broker), _count(trace.share)
        pairs, pair = np.unique(trace.broker.astype(np.int64) * keys + trace.share, return_inverse=True)
        who = trace.arrival_us, trace.question, trace.client, trace.broker, trace.share, pair
        sizes = trace.estimate_bytes, trace.heap_bytes, trace.direct_bytes
        times = trace.upstream_us, trace.hold_us, trace.write_us, trace.kept_ppm, trace.cancel_us
        # In the order of `L.N_ARRIVAL` to `L.N_CANCEL`.
        needs = np.stack([*who, *sizes, *times], axis=1, dtype=np.int64)
        starts = np.searchsorted(pairs, np.arange(brokers + 1) * keys).astype(np.int64)
        return cls(trace, needs.reshape(-1), _count(trace.client), _count(trace.question), brokers, keys, starts)

    def books(self, limits: Limits, load: int, slots: int) -> Ints:
        """Make the empty books of a replay."""
        in_turns = limits.fairness != "fifo"
        pairs = int(self.keys_of_brokers[-1])
        at = L.ROWS
        begins = {}
        for name, rows, words in (
            (L.GATES, self.brokers, L.SEMAPHORE_WORDS),
            (L.SLOTS, self.brokers, L.SEMAPHORE_WORDS),
            (L.CLIENTS, self.clients, L.CLIENT_WORDS),
            (L.QUESTIONS, self.questions, L.QUESTION_WORDS),
            (L.KEYS_OF_GATES, pairs * in_turns, L.KEY_WORDS),
            (L.KEYS_OF_SLOTS, pairs * in_turns, L.KEY_WORDS),
            (L.KEYS_OF_HEAP, self.keys * in_turns, L.KEY_WORDS),
            (L.KEYS_OF_DIRECT, self.keys * in_turns, L.KEY_WORDS),
            (L.RINGS_BEGIN, 2 * (pairs + self.keys) * in_turns, 1),
            (L.SLOTS_BEGIN, slots, L.SLOT_WORDS),
        ):
            begins[name] = at
            at += rows * words
        m = np.zeros(at, np.int64)
        for name, begin in begins.items():
            m[name] = begin
        m[L.NEW], m[L.END] = m[L.SLOTS_BEGIN], at
        m[L.LOAD], m[L.REQUEST_TIMEOUT] = load, limits.request_timeout_us
        m[L.COALESCING], m[L.IN_TURNS] = limits.coalescing, in_turns
        m[L.ANSWER_LIMIT], m[L.MOST_IDLE] = limits.answer_limit_bytes, MOST_IDLE_DEBTORS
        m[L.AT_ONCE] = GRANTS_AT_ONCE
        self._semaphores(m, limits)
        return m

    def _semaphores(self, m: Ints, limits: Limits) -> None:
        rings, pairs = int(m[L.RINGS_BEGIN]), int(self.keys_of_brokers[-1])
        half = max(1, limits.heap_bytes // 2) if limits.heap_bytes > 0 else 0
        of_heap = limits.heap_queue, limits.heap_timeout_us, L.MEMORY_DEADLINES
        of_direct = limits.direct_queue, limits.direct_timeout_us, L.DIRECT_DEADLINES
        for broker, keys in enumerate(self.keys_of_brokers[:-1]):
            gate, slots = (int(m[first]) + broker * L.SEMAPHORE_WORDS for first in (L.GATES, L.SLOTS))
            _semaphore(m, gate, GATE, half, limits, rings + int(keys), of_heap)
            _semaphore(m, slots, SLOT, limits.max_outstanding_per_broker, limits, rings + pairs + int(keys))
        _semaphore(m, L.HEAP, HEAP, limits.heap_bytes, limits, rings + 2 * pairs, of_heap)
        _semaphore(m, L.DIRECT, DIRECT, limits.direct_bytes, limits, rings + 2 * pairs + self.keys, of_direct)


def _semaphore(
    m: Ints, s: int, kind: int, limit: int, limits: Limits, rings: int, waits: tuple[int, int, int] = (0, 0, 0)
) -> None:
    """Write what a semaphore goes by; `waits` are its longest queue, its timeout, and the chain of deadlines."""
    m[s + L.LIMIT] = limit
    m[s + L.QUANTUM] = max(1, limit // QUANTA_PER_LIMIT)
    capped = limit > 0 and limits.key_cap_percent < 100 and limits.fairness != "fifo"
    m[s + L.CAP] = limit * limits.key_cap_percent // 100 if capped else NO_CAP
    m[s + L.PERMITS], m[s + L.KEYS] = L.OF_GATE + kind * L.PERMIT_WORDS, L.KEY_OF_GATE + kind
    m[s + L.RINGS] = rings
    m[s + L.MAX_QUEUE], m[s + L.TIMEOUT], m[s + L.DEADLINES] = waits


def _count(numbers: Int32s) -> int:
    return int(numbers.max(initial=-1)) + 1
