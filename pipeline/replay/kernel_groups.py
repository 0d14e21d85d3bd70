"""The way of a group in the kernel: heap memory for an estimate, in its broker's line and in the common one, then the
question, memory for the answer's size, a client that can take the list, direct memory, and each member's list.

A function that ends in a wait leaves the group's state behind; `run_group` goes on from it when the group is woken.
"""

from pipeline.core.model import NEVER, PAYERS_ASKED, Outcome
from pipeline.replay import kernel_lines as lines
from pipeline.replay import kernel_turns as turns
from pipeline.replay import layout as L
from pipeline.replay.compiled import Ints, compiled, inlined
from pipeline.replay.kernel_chains import begin_done, push, soon

OK = L.number(Outcome.OK)
TIMEOUT_HEAP = L.number(Outcome.TIMEOUT_HEAP)
TIMEOUT_HEAP_UPDATE = L.number(Outcome.TIMEOUT_HEAP_UPDATE)
TIMEOUT_DIRECT = L.number(Outcome.TIMEOUT_DIRECT)
TIMEOUT_OTHER = L.number(Outcome.TIMEOUT_OTHER)
QUEUE_FULL_HEAP = L.number(Outcome.QUEUE_FULL_HEAP)
QUEUE_FULL_DIRECT = L.number(Outcome.QUEUE_FULL_DIRECT)
OVERSIZE = L.number(Outcome.OVERSIZE)


# --- the payer of a group -----------------------------------------------------------------------


@compiled
def _payer(m: Ints, s: int, g: int, n: int) -> int:
    """Return the key of the member that is there longest, or one that is not at its cap."""
    r = m[g + L.MEMBERS]
    for _ in range(PAYERS_ASKED):
        if r == 0:
            break
        if not turns.at_cap(m, s, m[r + m[s + L.KEYS]], n):
            return int(m[r + m[s + L.KEYS]])
        r = m[r + L.MEMBER_LINK + 1]
    return int(m[m[g + L.MEMBERS] + m[s + L.KEYS]])


@compiled
def _claim(m: Ints, s: int, g: int, n: int, since: int) -> int:
    """Ask for a permit, on the payer's account; the time for it counts from `since`."""
    if m[L.IN_TURNS]:
        m[g + m[s + L.PERMITS] + L.KEY] = _payer(m, s, g, n)
    return lines.acquire(m, s, g, n, since)


@inlined
def _claim_again(m: Ints, g: int) -> int:
    """Ask anew after a wait that was too long, if members have joined meanwhile, for as long as they have left."""
    state, joined = m[g + L.STATE], m[m[g + L.MEMBERS + 1] + L.STARTED]
    if (state == L.G_AT_GATE or state == L.G_AT_HEAP) and joined + m[L.HEAP + L.TIMEOUT] > m[g + L.WAITS_LATE]:
        return _claim(m, m[g + L.G_GATE] if state == L.G_AT_GATE else L.HEAP, g, m[g + L.ESTIMATE], joined)
    return lines.TOO_LATE


# --- the group that may ask ---------------------------------------------------------------------


@compiled
def _begin(m: Ints, g: int) -> None:
    """Wake the next group, which may ask: this one's answer begins, or never will."""
    question = m[g + L.G_QUESTION]
    if question != 0 and m[question + L.ASKED] == g:
        m[question + L.ASKED] = 0
    follower = m[g + L.FOLLOWER]
    if follower != 0:
        m[g + L.FOLLOWER] = 0
        m[follower + L.PREDECESSOR] = 0
        if m[follower + L.STATE] == L.G_FOLLOWS:
            soon(m, follower)


@inlined
def end_question(m: Ints, g: int) -> None:
    """Forget a group that asks no more."""
    question = m[g + L.G_QUESTION]
    if question != 0 and m[question + L.JOINABLE] == g:
        m[question + L.JOINABLE] = 0
    _begin(m, g)


# --- the way, from wait to wait -------------------------------------------------------------------


@compiled
def _settle(m: Ints, g: int, outcome: int) -> None:
    r = m[g + L.MEMBERS]
    while r != 0:
        m[r + L.RESULT] = outcome
        m[r + L.STATE] = L.ANSWERED
        soon(m, r)
        r = m[r + L.MEMBER_LINK + 1]


@inlined
def _give_back_heap(m: Ints, g: int) -> None:
    lines.release(m, L.HEAP, g)
    lines.release(m, m[g + L.G_GATE], g)


@compiled
def _fail(m: Ints, g: int, outcome: int) -> None:
    _give_back_heap(m, g)
    _settle(m, g, outcome)
    m[g + L.STATE] = L.G_FAILED
    m[g + L.WORKS] = 0
    end_question(m, g)


@inlined
def _ask(m: Ints, c: Ints, g: int) -> int:
    """Write the question; nobody joins any more."""
    if m[g - L.REQUEST_WORDS + L.INDEX] >= m[L.COUNTED_FROM]:
        m[L.QUESTIONS_ASKED] += 1
    question = m[g + L.G_QUESTION]
    if question != 0 and m[question + L.JOINABLE] == g:
        m[question + L.JOINABLE] = 0
        m[question + L.ASKED] = g
    m[g + L.STATE] = L.G_ASKS
    begin_done(m, c, m[g + L.UPSTREAM_TIME], L.ANSWER_BEGINS, g)
    return lines.WAITS


@inlined
def answer_begins(m: Ints, g: int) -> None:
    """Release what only the asking needed, and admit the answer if that is possible now."""
    lines.release(m, m[g + L.G_SLOTS], g)
    if m[g + L.STATE] == L.G_ASKS:  # else nobody waits for it any more
        lines.release(m, m[g + L.G_GATE], g)
        _begin(m, g)
        limit = m[L.ANSWER_LIMIT]
        if m[g + L.DIRECT_BYTES] > limit > 0:
            m[g + L.G_RESULT] = L.TOO_LARGE
        else:
            m[g + L.STAGE] = TIMEOUT_HEAP_UPDATE
            m[g + L.SPANS + 2] = m[L.NOW]
            admitted = lines.try_update(m, L.HEAP, g, m[g + L.HEAP_BYTES])
            m[g + L.G_RESULT] = L.GRANTED if admitted else L.MUST_GROW
        soon(m, g)


@inlined
def _admit(m: Ints, g: int) -> int:
    """Continue with an answer that has begun: grow the permit to it if that must wait, fail one that is too large."""
    result = m[g + L.G_RESULT]
    m[g + L.STATE] = L.G_GROWS
    if result == L.MUST_GROW:
        return lines.update(m, L.HEAP, g, m[g + L.HEAP_BYTES])
    if result == L.TOO_LARGE:
        m[g + L.STAGE] = OVERSIZE
        return lines.TOO_LATE
    return lines.GRANTED


@compiled
def _promise(m: Ints, g: int) -> bool:
    """Assign the list as a promise to the first client that can take it."""
    r = m[g + L.MEMBERS]
    while r != 0:
        client = m[r + L.CLIENT]
        if m[client + L.PROMISED] == 0 and m[client + L.WRITES] == 0:
            m[client + L.PROMISED] += 1
            m[r + L.HAS_PROMISE] = 1
            return True
        r = m[r + L.MEMBER_LINK + 1]
    return False


@inlined
def _look_for_reader(m: Ints, g: int) -> int:
    """Ask for direct memory if a client can take the list; else wait."""
    m[g + L.STATE] = L.G_READS
    m[g + L.LOOKS_AGAIN] = 0
    if not _promise(m, g):
        return lines.WAITS
    m[g + L.STAGE] = TIMEOUT_DIRECT
    m[g + L.SPANS + 4] = m[L.NOW]
    m[g + L.STATE] = L.G_AT_DIRECT
    return _claim(m, L.DIRECT, g, m[g + L.DIRECT_BYTES], m[L.NOW])


@inlined
def _step(m: Ints, c: Ints, g: int) -> int:
    """Continue from the state that the group has come through, to the next wait that there may be."""
    state, now = m[g + L.STATE], m[L.NOW]
    if state <= L.G_FOLLOWS:
        # Heap memory, first in the line of the broker.
        m[g + L.STAGE] = TIMEOUT_HEAP
        m[g + L.SPANS] = now
        m[g + L.STATE] = L.G_AT_GATE
        came_to = _claim(m, m[g + L.G_GATE], g, m[g + L.ESTIMATE], now)
    elif state == L.G_AT_GATE:
        m[g + L.STATE] = L.G_AT_HEAP
        came_to = _claim(m, L.HEAP, g, m[g + L.ESTIMATE], now)
    elif state == L.G_AT_HEAP:
        m[g + L.SPANS + 1] = now
        m[g + L.STAGE] = TIMEOUT_OTHER
        m[g + L.STATE] = L.G_AT_SLOT
        came_to = _claim(m, m[g + L.G_SLOTS], g, L.ONE, now)
    elif state == L.G_AT_SLOT:
        came_to = _ask(m, c, g)
    elif state == L.G_ASKS:
        came_to = _admit(m, g)
    elif state == L.G_GROWS:
        m[g + L.SPANS + 3] = now
        m[g + L.STAGE] = TIMEOUT_OTHER
        m[g + L.STATE] = L.G_HOLDS
        begin_done(m, c, m[g + L.HOLD_TIME], L.ANSWER_WHOLE, g)
        came_to = lines.WAITS
    elif state != L.G_AT_DIRECT:
        came_to = _look_for_reader(m, g)
    else:
        m[g + L.SPANS + 5] = now
        m[g + L.STATE] = L.G_IS_WRITTEN
        m[g + L.ALONE] = m[g + L.MEMBERS] == m[g + L.MEMBERS + 1]
        lines.release(m, L.HEAP, g)
        m[g + L.STAGE] = TIMEOUT_OTHER
        _settle(m, g, OK)
        m[g + L.WORKS] = 0
        came_to = lines.WAITS
    return came_to


@compiled
def run_group(m: Ints, c: Ints, g: int) -> None:
    """Continue after what the group was woken by, as far as it comes without waiting."""
    came_to = lines.GRANTED
    if m[g + L.STATE] <= L.G_FOLLOWS and m[g + L.PREDECESSOR] != 0:
        m[g + L.STATE] = L.G_FOLLOWS
        came_to = lines.WAITS
    elif m[g + L.WAKES_LATE]:
        m[g + L.WAKES_LATE] = 0
        came_to = _claim_again(m, g)
    while came_to == lines.GRANTED:
        came_to = _step(m, c, g)
    if came_to == lines.FULL:
        _fail(m, g, QUEUE_FULL_HEAP if m[g + L.STAGE] == TIMEOUT_HEAP else QUEUE_FULL_DIRECT)
    elif came_to == lines.TOO_LATE:
        _fail(m, g, m[g + L.STAGE])


# --- calls from outside ---------------------------------------------------------------------------


@inlined
def expire(m: Ints, g: int) -> None:
    """End a group's wait: its time is over."""
    m[g + L.WAKES_LATE] = 1
    soon(m, g)
    lines.leave(m, m[g + L.WAITS_AT], g)


@inlined
def stop(m: Ints, g: int) -> None:
    """End a group whose last member has left: it leaves its line now, and gives back in its turn."""
    m[g + L.STATE] = L.G_STOPS
    soon(m, g)
    if m[g + L.WAITS_AT] != 0:
        lines.leave(m, m[g + L.WAITS_AT], g)
    before = m[g + L.PREDECESSOR]
    if before != 0:
        m[before + L.FOLLOWER] = 0
        m[g + L.PREDECESSOR] = 0


@inlined
def clean_up(m: Ints, g: int) -> None:
    """Release what a group that was stopped still holds; a question on its way keeps its slot."""
    _give_back_heap(m, g)
    m[g + L.STATE] = L.G_ABANDONED


@inlined
def join(m: Ints, g: int, r: int) -> None:
    """Add a member."""
    push(m, g + L.MEMBERS, r, L.MEMBER_LINK)
    m[r + L.GROUP] = g


@inlined
def lead_group(m: Ints, g: int, r: int) -> None:
    """Begin a group; what it needs has been written into its row."""
    for word in range(L.OF_GATE, L.GROUP_WORDS):
        m[g + word] = 0
    for span in range(6):
        m[g + L.SPANS + span] = NEVER
    m[g + L.MEMBERS] = m[g + L.MEMBERS + 1] = 0
    m[g + L.PREDECESSOR] = m[g + L.FOLLOWER] = m[g + L.LOOKS_AGAIN] = 0
    m[g + L.WAITS_AT] = m[g + L.PENDING] = m[g + L.WAKES_LATE] = 0
    m[g + L.STAGE] = TIMEOUT_OTHER
    m[g + L.STATE] = L.G_BEGINS
    m[g + L.WORKS] = 1
    question = m[r + L.QUESTION]
    m[g + L.G_QUESTION] = question
    if question != 0:
        m[question + L.JOINABLE] = g
        before = m[question + L.ASKED]
        if before != 0:
            m[g + L.PREDECESSOR] = before
            m[before + L.FOLLOWER] = g
    soon(m, g)
