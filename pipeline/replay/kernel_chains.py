"""Chains, stacks and heaps of the kernel: the order of things, and no rule about them."""

from pipeline.replay import layout as L
from pipeline.replay.compiled import Ints, compiled, inlined


@compiled
def push(m: Ints, line: int, row: int, link: int) -> None:
    """Put a row at the end of a chain, whose head and tail are at `line`; `link` is where its two links are."""
    tail = m[line + L.TAIL]
    m[row + link] = tail
    m[row + link + 1] = 0
    if tail == 0:
        m[line + L.HEAD] = row
    else:
        m[tail + link + 1] = row
    m[line + L.TAIL] = row


@compiled
def unlink(m: Ints, line: int, row: int, link: int) -> None:
    """Take a row out of its chain, wherever it stands."""
    before, after = m[row + link], m[row + link + 1]
    if before == 0:
        m[line + L.HEAD] = after
    else:
        m[before + link + 1] = after
    if after == 0:
        m[line + L.TAIL] = before
    else:
        m[after + link] = before


@compiled
def insert_after(m: Ints, line: int, row: int, link: int, before: int) -> None:
    """Put a row behind another one, or first."""
    after = m[line + L.HEAD] if before == 0 else m[before + link + 1]
    m[row + link] = before
    m[row + link + 1] = after
    if before == 0:
        m[line + L.HEAD] = row
    else:
        m[before + link + 1] = row
    if after == 0:
        m[line + L.TAIL] = row
    else:
        m[after + link] = row


@compiled
def soon(m: Ints, row: int) -> None:
    """Append a row to those that are to run already."""
    m[row + L.READY_NEXT] = 0
    last = m[L.READY_LAST]
    if last == 0:
        m[L.READY] = row
    else:
        m[last + L.READY_NEXT] = row
    m[L.READY_LAST] = row


@compiled
def begin_event(m: Ints, c: Ints, when: int, order: int) -> None:
    """Put an event into the heap; events are pairs of a time and an order that says whose it is."""
    at = m[L.EVENTS]
    m[L.EVENTS] = at + 1
    while at > 0:
        above = (at - 1) >> 1
        time = c[2 * above]
        if time < when or (time == when and c[2 * above + 1] < order):
            break
        c[2 * at] = time
        c[2 * at + 1] = c[2 * above + 1]
        at = above
    c[2 * at] = when
    c[2 * at + 1] = order


@inlined
def begin_done(m: Ints, c: Ints, duration: int, kind: int, row: int) -> None:
    """Schedule that something of `kind` is done after `duration`."""
    m[L.BEGUN] += 1
    m[row + L.PENDING] = 1
    order = (m[L.BEGUN] << L.ORDER_SHIFT) | (kind << L.KIND_SHIFT) | row
    begin_event(m, c, m[L.NOW] + duration, order)


@compiled
def take_event(m: Ints, c: Ints) -> int:
    """Take the first event out of the heap, and return its order."""
    first = c[1]
    count = m[L.EVENTS] - 1
    m[L.EVENTS] = count
    when, order = c[2 * count], c[2 * count + 1]
    at = 0
    while True:
        below = 2 * at + 1
        if below >= count:
            break
        other = below + 1
        if other < count and (
            c[2 * other] < c[2 * below] or (c[2 * other] == c[2 * below] and c[2 * other + 1] < c[2 * below + 1])
        ):
            below = other
        if when < c[2 * below] or (when == c[2 * below] and order < c[2 * below + 1]):
            break
        c[2 * at] = c[2 * below]
        c[2 * at + 1] = c[2 * below + 1]
        at = below
    c[2 * at] = when
    c[2 * at + 1] = order
    return int(first)


@inlined
def _earlier(m: Ints, one: int, other: int) -> bool:
    """Return whether a key's turn comes before that of another."""
    mine, its = m[one + L.RING], m[other + L.RING]
    return bool(mine < its or (mine == its and m[one + L.PLACE] < m[other + L.PLACE]))


@inlined
def _put(m: Ints, rings: int, at: int, key: int) -> None:
    m[rings + at] = key
    m[key + L.AT] = at


@compiled
def _settle_ring(m: Ints, s: int, at: int, key: int) -> None:
    """Move a key up or down from a free position, to where it belongs."""
    rings, count = m[s + L.RINGS], m[s + L.RINGS_COUNT]
    while at > 0 and _earlier(m, key, m[rings + ((at - 1) >> 1)]):
        _put(m, rings, at, m[rings + ((at - 1) >> 1)])
        at = (at - 1) >> 1
    while 2 * at + 1 < count:
        below = 2 * at + 1
        if below + 1 < count and _earlier(m, m[rings + below + 1], m[rings + below]):
            below += 1
        if _earlier(m, key, m[rings + below]):
            break
        _put(m, rings, at, m[rings + below])
        at = below
    _put(m, rings, at, key)


@compiled
def enter_ring(m: Ints, s: int, key: int) -> None:
    """Put a key into the heap of rings, by its round and place."""
    at = m[s + L.RINGS_COUNT]
    m[s + L.RINGS_COUNT] = at + 1
    _settle_ring(m, s, at, key)


@compiled
def leave_ring(m: Ints, s: int, key: int) -> None:
    """Take a key out of the heap of rings."""
    count = m[s + L.RINGS_COUNT] - 1
    m[s + L.RINGS_COUNT] = count
    last = m[m[s + L.RINGS] + count]
    if last != key:
        _settle_ring(m, s, m[key + L.AT], last)
