"""Requests and their clients in the kernel: arriving, joining, writing, leaving.

Rules, those of docs/adr/0009: a group takes joiners until its question is written; that of the next group waits until
its answer begins. The member that is there longest pays, unless its key is at its cap. A client takes one list at
a time, which is promised before memory is asked for, and two of its requests are under way.

A slot holds a request and, behind it, the group that the request leads if it is the first of its kind; it is used again
when both are over.
"""

from pipeline.core.model import LISTS_AT_ONCE, MILLION, NEVER, Outcome
from pipeline.replay import kernel_groups as groups
from pipeline.replay import kernel_lines as lines
from pipeline.replay import layout as L
from pipeline.replay.compiled import Ints, compiled, inlined
from pipeline.replay.kernel_chains import begin_done, begin_event, push, soon, unlink
from pipeline.replay.kernel_groups import OK, TIMEOUT_OTHER

CANCELLED = L.number(Outcome.CANCELLED)


# --- slots --------------------------------------------------------------------------------------


@compiled
def give_up_part(m: Ints, r: int) -> None:
    """End the use of a slot by its request or by its group."""
    m[r + L.PARTS] -= 1
    if m[r + L.PARTS] == 0:
        m[r + L.INDEX] = NEVER
        m[r + L.READY_NEXT] = m[L.FREE]
        m[L.FREE] = r


@compiled
def free_group(m: Ints, g: int) -> None:
    """End the use of a group's part of its slot."""
    m[g + L.STATE] = 0
    give_up_part(m, g - L.REQUEST_WORDS)


# --- a client -----------------------------------------------------------------------------------


@compiled
def _tell(m: Ints, client: int) -> None:
    """Wake the lists that wait for this client to be able to take one, so that they look again."""
    for at in range(L.FIRST, L.SECOND + 1):
        r = m[client + at]
        if r != 0 and m[r + L.STATE] == L.AWAITING:
            g = m[r + L.GROUP]
            if m[g + L.STATE] == L.G_READS and m[g + L.LOOKS_AGAIN] == 0:
                m[g + L.LOOKS_AGAIN] = 1
                soon(m, g)


@compiled
def _redeem(m: Ints, r: int) -> None:
    if m[r + L.HAS_PROMISE]:
        m[r + L.HAS_PROMISE] = 0
        m[m[r + L.CLIENT] + L.PROMISED] -= 1
        _tell(m, m[r + L.CLIENT])


@inlined
def _let_start(m: Ints, r: int) -> None:
    """Count a request as under way; it is started by its caller."""
    client = m[r + L.CLIENT]
    m[client + L.UNDER_WAY] += 1
    at = L.FIRST if m[client + L.FIRST] == 0 else L.SECOND
    m[client + at] = r
    m[r + L.STATE] = L.STARTING


# --- the end of a request -----------------------------------------------------------------------


@inlined
def _part_of(m: Ints, span: int, r: int) -> int:
    """Return how much of a wait of its group the request has waited, if it ends now."""
    since, until = m[span], m[span + 1]
    if since == NEVER:
        return 0
    if until == NEVER:
        until = m[L.NOW]
    return int(max(0, until - max(since, m[r + L.STARTED])))


@compiled
def _stop_clock(m: Ints, r: int) -> None:
    if m[r + L.CLOCKED]:
        m[r + L.CLOCKED] = 0
        unlink(m, L.CLOCKS, r, L.CLOCK_LINK)


@compiled
def _record(m: Ints, r: int, outcome: int) -> None:
    """Record how a request ended; the loop tells those who want to know."""
    _stop_clock(m, r)
    m[r + L.STATE] = L.OVER
    m[r + L.RESULT] = outcome
    m[r + L.ENDED_AT] = m[L.NOW]
    g = m[r + L.GROUP]
    for wait in range(3):
        m[r + L.HEAP_WAIT + wait] = 0 if g == 0 else _part_of(m, g + L.SPANS + 2 * wait, r)
    m[r + L.TELL_NEXT] = m[L.ENDED]
    m[L.ENDED] = r


@inlined
def _leave(m: Ints, r: int) -> None:
    """Take a request out of its group, and end the group with the last."""
    g = m[r + L.GROUP]
    _redeem(m, r)
    unlink(m, g + L.MEMBERS, r, L.MEMBER_LINK)
    if m[g + L.MEMBERS] == 0:
        groups.end_question(m, g)
        if m[g + L.WORKS]:
            groups.stop(m, g)
        else:
            lines.release(m, L.DIRECT, g)
            free_group(m, g)


@compiled
def _finish(m: Ints, r: int, outcome: int) -> None:
    """End a request that was started."""
    _record(m, r, outcome)
    if m[r + L.GROUP] != 0:
        _leave(m, r)
    client = m[r + L.CLIENT]
    m[client + L.UNDER_WAY] -= 1
    at = L.FIRST if m[client + L.FIRST] == r else L.SECOND
    m[client + at] = 0
    following = m[client + L.HEAD]
    if following != 0:
        unlink(m, client, following, L.MEMBER_LINK)
        _let_start(m, following)
        soon(m, following)


# --- the life of a request ------------------------------------------------------------------------


@inlined
def _prepare(m: Ints, need: Ints, index: int) -> int:
    """Write what is known of a request, and what a group would need that it leads, into a slot."""
    r, n = m[L.FREE], index * L.NEED_WORDS
    if r != 0:
        m[L.FREE] = m[r + L.READY_NEXT]
    else:
        r = m[L.NEW]
        m[L.NEW] = r + L.SLOT_WORDS
    m[r + L.PARTS] = 1
    m[r + L.INDEX] = index
    m[r + L.CLIENT] = m[L.CLIENTS] + need[n + L.N_CLIENT] * L.CLIENT_WORDS
    m[r + L.QUESTION] = m[L.QUESTIONS] + need[n + L.N_QUESTION] * L.QUESTION_WORDS if m[L.COALESCING] else 0
    if m[L.IN_TURNS]:
        key, pair = need[n + L.N_KEY] * L.KEY_WORDS, need[n + L.N_PAIR] * L.KEY_WORDS
        m[r + L.KEY_OF_GATE] = m[L.KEYS_OF_GATES] + pair
        m[r + L.KEY_OF_HEAP] = m[L.KEYS_OF_HEAP] + key
        m[r + L.KEY_OF_SLOT] = m[L.KEYS_OF_SLOTS] + pair
        m[r + L.KEY_OF_DIRECT] = m[L.KEYS_OF_DIRECT] + key
    m[r + L.ARRIVAL] = m[L.NOW]
    m[r + L.DEADLINE] = m[L.NOW] + m[L.REQUEST_TIMEOUT]
    m[r + L.WRITE_TIME] = need[n + L.N_WRITE]
    m[r + L.KEPT_PPM] = need[n + L.N_KEPT]
    m[r + L.WORK_TIME] = need[n + L.N_UPSTREAM] + need[n + L.N_HOLD] + need[n + L.N_WRITE]
    m[r + L.GROUP] = m[r + L.HAS_PROMISE] = m[r + L.PENDING] = 0
    g = r + L.REQUEST_WORDS
    broker = need[n + L.N_BROKER] * L.SEMAPHORE_WORDS
    m[g + L.G_GATE] = m[L.GATES] + broker
    m[g + L.G_SLOTS] = m[L.SLOTS] + broker
    for word in range(5):
        m[g + L.ESTIMATE + word] = need[n + L.N_ESTIMATE + word]
    return int(r)


@compiled
def arrive(m: Ints, c: Ints, need: Ints) -> None:
    """Enter the next request of the trace, which starts, or stands behind others of its client."""
    index = m[L.ARRIVED]
    m[L.ARRIVED] = index + 1
    r = _prepare(m, need, index)
    leaves_after = need[index * L.NEED_WORDS + L.N_CANCEL]
    if leaves_after != NEVER:
        m[L.LEAVINGS] += 1
        begin_event(m, c, m[L.NOW] + leaves_after, L.LEAVING_BIT | (index << L.ORDER_SHIFT) | r)
    m[r + L.CLOCKED] = 1
    push(m, L.CLOCKS, r, L.CLOCK_LINK)
    client = m[r + L.CLIENT]
    if m[client + L.UNDER_WAY] < LISTS_AT_ONCE and m[client + L.HEAD] == 0:
        _let_start(m, r)
        soon(m, r)
    else:
        m[r + L.STATE] = L.BEHIND
        push(m, client, r, L.MEMBER_LINK)


@inlined
def start(m: Ints, r: int) -> None:
    """Start a request, which joins a group, or leads one; its clock may have ended while it was behind others."""
    m[r + L.STARTED] = m[L.NOW]
    if m[r + L.DEADLINE] <= m[L.NOW]:
        _finish(m, r, TIMEOUT_OTHER)
    else:
        m[r + L.STATE] = L.AWAITING
        question = m[r + L.QUESTION]
        g = L.ZERO if question == 0 else m[question + L.JOINABLE]
        if g == 0:
            g = r + L.REQUEST_WORDS
            m[r + L.PARTS] += 1
            groups.lead_group(m, g, r)
        groups.join(m, g, r)


@inlined
def run_request(m: Ints, c: Ints, r: int) -> None:
    """Continue after what the request was woken by."""
    state = m[r + L.STATE]
    if state == L.STARTING:
        start(m, r)
    elif m[r + L.RESULT] != OK:
        _finish(m, r, m[r + L.RESULT])
    else:
        client = m[r + L.CLIENT]
        if state == L.NEXT_TO_WRITE:
            m[client + L.WRITES_NEXT] = 0
        if m[client + L.WRITES] != 0 or m[client + L.WRITES_NEXT] != 0:
            m[client + L.WRITES_NEXT] = r
            m[r + L.STATE] = L.IN_LINE
        else:
            _write(m, c, r)


@inlined
def _write(m: Ints, c: Ints, r: int) -> None:
    """Write the list; from here the client's own reading decides, not the clock."""
    m[m[r + L.CLIENT] + L.WRITES] = r
    _redeem(m, r)
    _stop_clock(m, r)
    m[r + L.STATE] = L.WRITING
    g = m[r + L.GROUP]
    if m[g + L.ALONE]:
        size = m[g + L.OF_DIRECT + L.SIZE]
        kept = size * m[r + L.KEPT_PPM] // MILLION
        if kept < size:
            lines.shrink(m, L.DIRECT, g, kept)
    begin_done(m, c, m[r + L.WRITE_TIME], L.LIST_WRITTEN, r)


@compiled
def _end_to_write(m: Ints, r: int) -> None:
    client = m[r + L.CLIENT]
    m[client + L.WRITES] = 0
    following = m[client + L.WRITES_NEXT]
    if following != 0:
        m[following + L.STATE] = L.NEXT_TO_WRITE
        soon(m, following)
    _tell(m, client)


@inlined
def list_written(m: Ints, r: int) -> None:
    """End a request whose list has left; one that left before only gives its slot back."""
    if m[r + L.STATE] == L.WRITING:
        _end_to_write(m, r)
        _finish(m, r, OK)
    else:
        give_up_part(m, r)


@inlined
def time_out(m: Ints, r: int) -> None:
    """End a request whose clock has run out; one behind others is told when its turn comes."""
    _stop_clock(m, r)
    if m[r + L.STATE] != L.BEHIND:
        _leave_line(m, r)
        _finish(m, r, m[m[r + L.GROUP] + L.STAGE])


@inlined
def leave_early(m: Ints, r: int) -> None:
    """End a request whose client has left."""
    if m[r + L.STATE] == L.BEHIND:
        unlink(m, m[r + L.CLIENT], r, L.MEMBER_LINK)
        _record(m, r, CANCELLED)
    else:
        _leave_line(m, r)
        _finish(m, r, CANCELLED)


@inlined
def _leave_line(m: Ints, r: int) -> None:
    if m[r + L.STATE] == L.IN_LINE:
        m[m[r + L.CLIENT] + L.WRITES_NEXT] = 0
    elif m[r + L.STATE] == L.WRITING:
        _end_to_write(m, r)
