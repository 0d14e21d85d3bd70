"""Where the kernel keeps its books: everything in one array of int64, so that a function needs one argument for it.

A row is known by its address; `row + FIELD` is a number in it, and 0 is no row. First the header, then a row for each
semaphore, client, question and key, then slots: a request and, behind it, the group that it may come to lead. Slots are
used again; when there are too few the kernel stops between two events and goes on with more. A chain or a link has two
words, head and tail or previous and next, of which the first has the name.
"""

from collections.abc import Iterator
from itertools import count, islice
from typing import cast

import numpy as np


def number(value: int) -> int:
    """Make a constant of the kernel."""
    # For numba a plain constant is a type of its own, and each makes another version of the function it is given to.
    return cast(int, np.int64(value))


def _take(words: Iterator[int], how_many: int) -> Iterator[int]:
    return map(number, islice(words, how_many))


# The header. BEGUN counts events that were begun: their order in a microsecond.
_header = count(1)
NOW, ARRIVED, BEGUN, QUESTIONS_ASKED, LAST_END, SOURCES = _take(_header, 6)
EVENTS, LEAVINGS = _take(_header, 2)  # events to come, in the heap of events; those of them that are leavings
READY, READY_LAST, ENDED = _take(_header, 3)  # rows to run, linked by READY_NEXT; a stack of ends that are to be told
FREE, NEW, END = _take(_header, 3)  # a stack of slots that were used before; the first that never was; the end of all
CLOCKS, _, MEMORY_DEADLINES, _, DIRECT_DEADLINES, _ = _take(_header, 6)  # chains
(ARRIVALS,) = _take(_header, 1)  # counts newcomers in lines, and keys in rings
LOAD, REQUEST_TIMEOUT, COALESCING, IN_TURNS, ANSWER_LIMIT = _take(_header, 5)
COUNTED_FROM, MOST_IDLE = _take(_header, 2)  # the first request that is no warm-up; idle debtors of a semaphore
(AT_ONCE,) = _take(_header, 1)  # grants in one step
# Addresses of the first of each kind.
GATES, SLOTS, CLIENTS, QUESTIONS, RINGS_BEGIN, SLOTS_BEGIN = _take(_header, 6)
KEYS_OF_GATES, KEYS_OF_SLOTS, KEYS_OF_HEAP, KEYS_OF_DIRECT = _take(_header, 4)

# A line is a chain; semaphores and keys begin with one.
HEAD, TAIL = map(number, (0, 1))

_semaphore = count(2)
GROWERS, _, IDLE, _ = _take(_semaphore, 4)  # chains: of groups that wait to grow, of keys that owe and do not wait
COUNT, LIMIT, MAX_QUEUE, TIMEOUT, HELD, PEAK, IDLE_COUNT = _take(_semaphore, 7)
(DEADLINES,) = _take(_semaphore, 1)  # a chain's address, 0: nobody's wait ends
PERMITS, KEYS = _take(_semaphore, 2)  # the words of a group that are its permit, the word of a request that is its key
OVERSHOOTER, OVERSHOT_FROM, QUANTUM, CAP, ROUND = _take(_semaphore, 5)
RINGS, RINGS_COUNT = _take(_semaphore, 2)  # a heap of keys, by round and place
REST, _ = _take(_semaphore, 2)  # a row of its own: that those who are left are to be served
(SEMAPHORE_WORDS,) = _take(_semaphore, 1)
HEAP = number(next(_header))  # the two semaphores that are always there
DIRECT = HEAP + SEMAPHORE_WORDS
ROWS = DIRECT + SEMAPHORE_WORDS  # the words behind this address depend on the trace

# A key of a semaphore, which begins with the line of those that wait.
_key = count(2)
SPENT, WHERE, RING, PLACE, AT, KEY_HELD = _take(_key, 6)  # AT: its position in the heap of rings
KEY_LINK, _, KEY_WORDS = _take(_key, 3)
UNKNOWN, RESTING, IDLING, IN_RING, PARKED = map(number, range(5))

# A client, which begins with the line of its requests that are not under way.
_client = count(2)
UNDER_WAY, FIRST, SECOND, PROMISED = _take(_client, 4)  # FIRST, SECOND: the requests under way
WRITES, WRITES_NEXT = _take(_client, 2)  # the request that writes, and that which waits for the right to write
(CLIENT_WORDS,) = _take(_client, 1)

# A question.
JOINABLE, ASKED, QUESTION_WORDS = map(number, range(3))

# A request, a group and a rest begin with the same; PENDING: an event for it will come.
READY_NEXT, STATE, PENDING = map(number, range(3))
_request = count(3)
INDEX, CLIENT, QUESTION, GROUP = _take(_request, 4)
KEY_OF_GATE, KEY_OF_HEAP, KEY_OF_SLOT, KEY_OF_DIRECT = _take(_request, 4)
ARRIVAL, STARTED, DEADLINE, CLOCKED, HAS_PROMISE, RESULT, ENDED_AT, TELL_NEXT = _take(_request, 8)
MEMBER_LINK, _, CLOCK_LINK, _ = _take(_request, 4)
HEAP_WAIT, UPDATE_WAIT, DIRECT_WAIT = _take(_request, 3)
PARTS, WRITE_TIME = _take(_request, 2)  # parts of the slot that are in use: the request, the group
# The time of a request's life that is no wait; the part of direct memory that is held while it is written alone.
WORK_TIME, KEPT_PPM = _take(_request, 2)
(REQUEST_WORDS,) = _take(_request, 1)

_group = count(3)
G_RESULT, G_QUESTION, G_GATE, G_SLOTS = _take(_group, 4)
ESTIMATE, HEAP_BYTES, DIRECT_BYTES, UPSTREAM_TIME, HOLD_TIME = _take(_group, 5)
MEMBERS, _, PREDECESSOR, FOLLOWER = _take(_group, 4)
STAGE, WORKS, LOOKS_AGAIN, WAKES_LATE = _take(_group, 4)  # WAKES_LATE: its wait was ended
# Whether the group had one member when direct memory was granted; six times, see `lead_group`.
ALONE, SPANS, _, _, _, _, _ = _take(_group, 7)
# At which semaphore it waits, for how much, and until when.
WAITS_AT, WAITS_FOR, WAITS_LATE = _take(_group, 3)
WAIT_LINK, _, DEADLINE_LINK, _ = _take(_group, 4)
# Four permits, in the order of a request's keys, each of these words.
SIZE, KEY, CLAIMED, PERMIT_WORDS = map(number, range(4))
OF_GATE = number(next(_group))
OF_DIRECT, GROUP_WORDS = (OF_GATE + n * PERMIT_WORDS for n in map(number, (3, 4)))
SLOT_WORDS = REQUEST_WORDS + GROUP_WORDS

# The states of a claim.
ZERO, ONE = map(number, (0, 1))
NOTHING, WAITING, HOLDING = map(number, (0, 1, 2))

# The states of a request, and that of a rest.
BEHIND, STARTING, AWAITING, ANSWERED, IN_LINE, NEXT_TO_WRITE, WRITING, OVER, SERVES_REST = map(number, range(1, 10))
# The states of a group; all from `G_BEGINS` on, so that a row tells by its state what it is.
G_BEGINS, G_FOLLOWS, G_AT_GATE, G_AT_HEAP, G_AT_SLOT, G_ASKS, G_GROWS = map(number, range(11, 18))
G_HOLDS, G_READS, G_AT_DIRECT, G_IS_WRITTEN, G_STOPS, G_ABANDONED, G_FAILED = map(number, range(18, 25))
# The results of the beginning of an answer.
GRANTED, MUST_GROW, TOO_LARGE = map(number, range(3))
# The kinds of events.
ANSWER_BEGINS, ANSWER_WHOLE, LIST_WRITTEN = map(number, range(3))
LEAVING_BIT = number(1) << 62
ORDER_SHIFT = number(34)
KIND_SHIFT = number(32)
ROW_MASK = number((1 << KIND_SHIFT) - 1)
# The needs of a request, as they lie in the array of needs.
N_ARRIVAL, N_QUESTION, N_CLIENT, N_BROKER, N_KEY, N_PAIR, N_ESTIMATE, N_HEAP, N_DIRECT = map(number, range(9))
N_UPSTREAM, N_HOLD, N_WRITE, N_KEPT, N_CANCEL, NEED_WORDS = map(number, range(9, 15))
