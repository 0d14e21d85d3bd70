"""Where the kernel keeps its books: everything in one array of int64, so that a function needs one argument for it.

A row is known by its address; `row + FIELD` is a number in it, and 0 is no row. First the header, then a row for each
semaphore, client, question and key, then slots: a request and, behind it, the group that it may come to lead. Slots are
used again; when there are too few the kernel stops between two events and goes on with more.
"""

from collections.abc import Iterator
from itertools import count
from typing import Final, cast

import numpy as np


def number(value: int) -> int:
    """Make a constant of the kernel."""
    # For numba a plain constant is a type of its own, and each makes another version of the function it is given to.
    return cast(int, np.int64(value))


def _count(first: int) -> Iterator[int]:
    return map(number, count(first))


# The header.
_of_header = _count(1)
NOW: Final = next(_of_header)
ARRIVED: Final = next(_of_header)
BEGUN: Final = next(_of_header)  # events that were begun: their order in a microsecond
EVENTS: Final = next(_of_header)  # that will come, in the heap of events
LEAVINGS: Final = next(_of_header)  # of them
READY: Final = next(_of_header)  # a chain of rows that are to run, linked by READY_NEXT
READY_LAST: Final = next(_of_header)
ENDED: Final = next(_of_header)  # a stack of requests whose end is to be told
FREE: Final = next(_of_header)  # a stack of slots that were used before
NEW: Final = next(_of_header)  # the first slot that never was
END: Final = next(_of_header)  # of the slots
CLOCKS: Final = next(_of_header)  # a chain: head and tail
CLOCKS_TAIL: Final = next(_of_header)
MEMORY_DEADLINES: Final = next(_of_header)
MEMORY_DEADLINES_TAIL: Final = next(_of_header)
DIRECT_DEADLINES: Final = next(_of_header)
DIRECT_DEADLINES_TAIL: Final = next(_of_header)
QUESTIONS_ASKED: Final = next(_of_header)
LAST_END: Final = next(_of_header)
ARRIVALS: Final = next(_of_header)  # of newcomers in lines, and of keys in rings
LOAD: Final = next(_of_header)
REQUEST_TIMEOUT: Final = next(_of_header)
COALESCING: Final = next(_of_header)
IN_TURNS: Final = next(_of_header)
ANSWER_LIMIT: Final = next(_of_header)
GATES: Final = next(_of_header)  # address of the first semaphore of that kind
SLOTS: Final = next(_of_header)
CLIENTS: Final = next(_of_header)
QUESTIONS: Final = next(_of_header)
KEYS_OF_GATES: Final = next(_of_header)
KEYS_OF_SLOTS: Final = next(_of_header)
KEYS_OF_HEAP: Final = next(_of_header)
KEYS_OF_DIRECT: Final = next(_of_header)
RINGS_BEGIN: Final = next(_of_header)
SLOTS_BEGIN: Final = next(_of_header)
SOURCES: Final = next(_of_header)
COUNTED_FROM: Final = next(_of_header)  # the index of the first request that is no warm-up
MOST_IDLE: Final = next(_of_header)  # keys of a semaphore that owe while nobody waits with them
HEAP: Final = number(64)  # the two semaphores that are always there
SEMAPHORE_WORDS: Final = number(24)
DIRECT: Final = HEAP + SEMAPHORE_WORDS
ROWS: Final = DIRECT + SEMAPHORE_WORDS  # what comes behind depends on the trace

# A line: head and tail of a chain; semaphores and keys begin with one.
HEAD: Final = number(0)
TAIL: Final = number(1)

# A semaphore.
GROWERS: Final = number(2)  # head and tail of a chain
COUNT: Final = number(4)
LIMIT: Final = number(5)
MAX_QUEUE: Final = number(6)
TIMEOUT: Final = number(7)
DEADLINES: Final = number(8)  # address of a chain, 0: nobody's wait ends
HELD: Final = number(9)
PEAK: Final = number(10)
OVERSHOOTER: Final = number(11)
OVERSHOT_FROM: Final = number(12)
QUANTUM: Final = number(13)
CAP: Final = number(14)
ROUND: Final = number(15)
IDLE: Final = number(16)  # head and tail of a chain
IDLE_COUNT: Final = number(18)
RINGS: Final = number(19)  # address of a heap of keys, by round and place
RINGS_COUNT: Final = number(20)
PERMITS: Final = number(21)  # where a group keeps its permit of this semaphore

# A key of a semaphore, which begins with the line of those that wait.
SPENT: Final = number(2)
WHERE: Final = number(3)
RING: Final = number(4)
PLACE: Final = number(5)
AT: Final = number(6)  # its position in the heap of rings
KEY_LINK: Final = number(7)  # previous and next
KEY_HELD: Final = number(9)
KEY_WORDS: Final = number(10)
UNKNOWN, RESTING, IDLING, IN_RING, PARKED = map(number, range(5))

# A client.
UNDER_WAY: Final = number(2)
PROMISED: Final = number(3)
WRITES: Final = number(4)
WRITES_NEXT: Final = number(5)  # the request that waits for the right to write
FIRST: Final = number(6)
SECOND: Final = number(7)  # the requests under way
CLIENT_WORDS: Final = number(8)

# A question.
JOINABLE: Final = number(0)
ASKED: Final = number(1)
QUESTION_WORDS: Final = number(2)

# A request, and a group: both begin with these.
READY_NEXT: Final = number(0)
STATE: Final = number(1)
PENDING: Final = number(2)  # an event for it will come
_of_request = _count(3)
INDEX: Final = next(_of_request)
CLIENT: Final = next(_of_request)
QUESTION: Final = next(_of_request)
KEY_OF_HEAP: Final = next(_of_request)
KEY_OF_GATE: Final = next(_of_request)
ARRIVAL: Final = next(_of_request)
STARTED: Final = next(_of_request)
DEADLINE: Final = next(_of_request)
CLOCKED: Final = next(_of_request)
GROUP: Final = next(_of_request)
HAS_PROMISE: Final = next(_of_request)
RESULT: Final = next(_of_request)
MEMBER_LINK: Final = next(_of_request)
_next = next(_of_request)
CLOCK_LINK: Final = next(_of_request)
_next = next(_of_request)
WRITE_TIME: Final = next(_of_request)
HEAP_WAIT: Final = next(_of_request)
UPDATE_WAIT: Final = next(_of_request)
DIRECT_WAIT: Final = next(_of_request)
ENDED_AT: Final = next(_of_request)
TELL_NEXT: Final = next(_of_request)
PARTS: Final = next(_of_request)  # of the slot that are in use: the request, the group
WORK_TIME: Final = next(_of_request)  # what of its life is no wait: broker, reading, writing
KEPT_PPM: Final = next(_of_request)  # of direct memory, while a list for it alone is written
REQUEST_WORDS: Final = number(28)

_of_group = _count(3)
G_RESULT: Final = next(_of_group)
G_QUESTION: Final = next(_of_group)
G_GATE: Final = next(_of_group)
G_SLOTS: Final = next(_of_group)
ESTIMATE: Final = next(_of_group)
HEAP_BYTES: Final = next(_of_group)
DIRECT_BYTES: Final = next(_of_group)
UPSTREAM_TIME: Final = next(_of_group)
HOLD_TIME: Final = next(_of_group)
MEMBERS: Final = next(_of_group)  # head and tail of a chain
_next = next(_of_group)
PREDECESSOR: Final = next(_of_group)
FOLLOWER: Final = next(_of_group)
STAGE: Final = next(_of_group)
WORKS: Final = next(_of_group)
LOOKS_AGAIN: Final = next(_of_group)
WAKES_LATE: Final = next(_of_group)  # its wait was ended
ALONE: Final = next(_of_group)  # one member was there when direct memory was granted
SPANS: Final = next(_of_group)  # since and until of heap, update and direct; NEVER if not yet
_after_spans = [next(_of_group) for _ in range(5)]
WAITS_AT: Final = next(_of_group)  # the semaphore
WAITS_FOR: Final = next(_of_group)  # the size
WAITS_LATE: Final = next(_of_group)  # until when
WAITS_SINCE: Final = next(_of_group)  # its place in the order of newcomers
WAIT_LINK: Final = next(_of_group)
_next = next(_of_group)
DEADLINE_LINK: Final = next(_of_group)
_next = next(_of_group)
PERMIT: Final = next(_of_group)  # four, each of these words
SIZE: Final = number(0)
KEY: Final = number(1)
ASKED_FOR: Final = number(2)
PAYER: Final = number(3)
CLAIMED: Final = number(4)
PERMIT_WORDS: Final = number(5)
OF_GATE: Final = PERMIT
OF_HEAP: Final = PERMIT + PERMIT_WORDS
OF_SLOT: Final = PERMIT + 2 * PERMIT_WORDS
OF_DIRECT: Final = PERMIT + 3 * PERMIT_WORDS
GROUP_WORDS: Final = PERMIT + 4 * PERMIT_WORDS
SLOT_WORDS: Final = REQUEST_WORDS + GROUP_WORDS

# What a claim has come to.
ZERO, ONE = map(number, (0, 1))
NOTHING, WAITING, HOLDING = map(number, (0, 1, 2))

# The states of a request.
BEHIND, STARTING, AWAITING, ANSWERED, IN_LINE, NEXT_TO_WRITE, WRITING, OVER = map(number, range(1, 9))
# The states of a group; all from `G_BEGINS` on, so that a row tells by its state what it is.
G_BEGINS, G_FOLLOWS, G_AT_GATE, G_AT_HEAP, G_AT_SLOT, G_ASKS, G_GROWS, G_HOLDS, G_READS, G_AT_DIRECT = map(
    number, range(11, 21)
)
G_IS_WRITTEN, G_STOPS, G_ABANDONED, G_FAILED = map(number, range(21, 25))
# What the beginning of an answer comes to.
GRANTED, MUST_GROW, TOO_LARGE = map(number, range(3))
# The kinds of events.
ANSWER_BEGINS, ANSWER_WHOLE, LIST_WRITTEN = map(number, (0, 1, 2))
LEAVING_BIT: Final = number(1) << 62
ORDER_SHIFT: Final = number(34)
KIND_SHIFT: Final = number(32)
ROW_MASK: Final = number((1 << KIND_SHIFT) - 1)
# What a request needs, as it lies in the array of needs.
N_ARRIVAL, N_QUESTION, N_CLIENT, N_BROKER, N_KEY, N_PAIR, N_ESTIMATE, N_HEAP, N_DIRECT = map(number, range(9))
N_UPSTREAM, N_HOLD, N_WRITE, N_KEPT, N_CANCEL = map(number, range(9, 14))
NEED_WORDS: Final = number(14)
