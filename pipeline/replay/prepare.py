"""A trace as the kernel reads it, prepared once for any number of limits; and the empty books for one replay."""

from dataclasses import dataclass

import numpy as np

from pipeline.core.model import MOST_IDLE_DEBTORS, QUANTA_PER_LIMIT, Limits, Trace
from pipeline.replay import layout as L
from pipeline.replay.compiled import Ints

NO_CAP = 1 << 62
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
        needs = np.empty((len(trace), L.NEED_WORDS), np.int64)
        for at, column in _columns(trace, pair.astype(np.int64)).items():
            needs[:, at] = column
        return cls(
            trace=trace,
            needs=needs.reshape(-1),
            clients=_count(trace.client),
            questions=_count(trace.question),
            brokers=brokers,
            keys=keys,
            keys_of_brokers=np.searchsorted(pairs, np.arange(brokers + 1) * keys).astype(np.int64),
        )

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
        self._semaphores(m, limits)
        return m

    def _semaphores(self, m: Ints, limits: Limits) -> None:
        rings = int(m[L.RINGS_BEGIN])
        pairs = int(self.keys_of_brokers[-1])
        half = max(1, limits.heap_bytes // 2) if limits.heap_bytes > 0 else 0
        for broker, keys in enumerate(self.keys_of_brokers[:-1]):
            gate = int(m[L.GATES]) + broker * L.SEMAPHORE_WORDS
            _semaphore(m, gate, half, limits, L.OF_GATE, rings + int(keys))
            _waits(m, gate, limits.heap_queue, limits.heap_timeout_us, L.MEMORY_DEADLINES)
            slots = int(m[L.SLOTS]) + broker * L.SEMAPHORE_WORDS
            _semaphore(m, slots, limits.max_outstanding_per_broker, limits, L.OF_SLOT, rings + pairs + int(keys))
        _semaphore(m, L.HEAP, limits.heap_bytes, limits, L.OF_HEAP, rings + 2 * pairs)
        _waits(m, L.HEAP, limits.heap_queue, limits.heap_timeout_us, L.MEMORY_DEADLINES)
        _semaphore(m, L.DIRECT, limits.direct_bytes, limits, L.OF_DIRECT, rings + 2 * pairs + self.keys)
        _waits(m, L.DIRECT, limits.direct_queue, limits.direct_timeout_us, L.DIRECT_DEADLINES)


def _semaphore(m: Ints, s: int, limit: int, limits: Limits, permits: int, rings: int) -> None:
    m[s + L.LIMIT] = limit
    m[s + L.QUANTUM] = max(1, limit // QUANTA_PER_LIMIT)
    capped = limit > 0 and limits.key_cap_percent < 100 and limits.fairness != "fifo"
    m[s + L.CAP] = limit * limits.key_cap_percent // 100 if capped else NO_CAP
    m[s + L.PERMITS] = permits
    m[s + L.RINGS] = rings


def _waits(m: Ints, s: int, max_queue: int, timeout_us: int, deadlines: int) -> None:
    m[s + L.MAX_QUEUE], m[s + L.TIMEOUT], m[s + L.DEADLINES] = max_queue, timeout_us, deadlines


def _count(numbers: "np.ndarray[tuple[int], np.dtype[np.int32]]") -> int:
    return int(numbers.max(initial=-1)) + 1


def _columns(trace: Trace, pair: Ints) -> "dict[int, np.ndarray[tuple[int], np.dtype[np.int64 | np.int32]]]":
    return {
        L.N_ARRIVAL: trace.arrival_us,
        L.N_QUESTION: trace.question,
        L.N_CLIENT: trace.client,
        L.N_BROKER: trace.broker,
        L.N_KEY: trace.share,
        L.N_PAIR: pair,
        L.N_ESTIMATE: trace.estimate_bytes,
        L.N_HEAP: trace.heap_bytes,
        L.N_DIRECT: trace.direct_bytes,
        L.N_UPSTREAM: trace.upstream_us,
        L.N_HOLD: trace.hold_us,
        L.N_WRITE: trace.write_us,
        L.N_KEPT: trace.kept_ppm,
        L.N_CANCEL: trace.cancel_us,
    }
