"""The kernel's semaphores: permits out of a limit, and a line of those who wait for them, as in `limiter.semaphore`.

Rules, those of docs/adr/0003: newcomers go in their order (`kernel_turns`, or as they came), and a first one that does
not fit holds up the others; growth goes before newcomers, and one permit at a time may overshoot the limit; an acquire
larger than the limit passes alone, clamped. Freed memory is booked to the next before it runs.
A group has one permit of each kind of semaphore and waits at one of them at most, so that its row is its place in line.
"""

from pipeline.replay import kernel_turns as turns
from pipeline.replay import layout as L
from pipeline.replay.compiled import Ints, compiled, inlined
from pipeline.replay.kernel_chains import insert_after, push, soon, unlink

# The results of an acquire at once.
GRANTED, WAITS, FULL, TOO_LATE = map(L.number, range(4))
MUST_WAIT = L.number(-1)


@compiled
def _room_for(m: Ints, s: int, n: int) -> int:
    limit = m[s + L.LIMIT]
    if limit <= 0 or n <= limit - m[s + L.HELD] or n == 0:
        return n
    return int(limit) if n > limit and m[s + L.HELD] == 0 else MUST_WAIT


@compiled
def _may_grow(m: Ints, s: int, permit: int, n: int) -> bool:
    limit, overshooter = m[s + L.LIMIT], m[s + L.OVERSHOOTER]
    if limit <= 0 or m[s + L.HELD] + n - m[permit + L.SIZE] <= limit:
        return True
    return bool(overshooter == 0 or overshooter == permit)


@compiled
def _resize(m: Ints, s: int, permit: int, n: int) -> None:
    """Set the size of a permit, and with it what semaphore and key hold, the peak and the overshooter."""
    delta = n - m[permit + L.SIZE]
    if delta == 0:
        return
    held = m[s + L.HELD] + delta
    m[s + L.HELD] = held
    if held > m[s + L.PEAK]:
        m[s + L.PEAK] = held
    overshooter = m[s + L.OVERSHOOTER]
    if overshooter != 0:
        if held <= m[s + L.LIMIT] or (permit == overshooter and n <= m[s + L.OVERSHOT_FROM]):
            m[s + L.OVERSHOOTER] = 0
    elif delta > 0 and held > m[s + L.LIMIT] > 0:
        m[s + L.OVERSHOOTER] = permit
        m[s + L.OVERSHOT_FROM] = m[permit + L.SIZE]
    if m[L.IN_TURNS]:
        m[m[permit + L.KEY] + L.KEY_HELD] += delta
    m[permit + L.SIZE] = n


@inlined
def _grow(m: Ints, s: int, permit: int, n: int) -> None:
    grown = n - m[permit + L.SIZE]
    _resize(m, s, permit, n)
    if m[L.IN_TURNS]:
        turns.charge(m, s, m[permit + L.KEY], grown)


@inlined
def unwatch(m: Ints, s: int, g: int) -> None:
    """Remove a group from the deadlines: nobody ends its wait any more."""
    if m[s + L.DEADLINES] != 0:
        unlink(m, m[s + L.DEADLINES], g, L.DEADLINE_LINK)


@inlined
def _watch(m: Ints, s: int, g: int, since: int) -> None:
    """End a group's wait after the semaphore's timeout; most are the last to end."""
    if m[s + L.DEADLINES] != 0:
        m[g + L.WAITS_LATE] = since + m[s + L.TIMEOUT]
        before = m[m[s + L.DEADLINES] + L.TAIL]
        while before != 0 and m[before + L.WAITS_LATE] > m[g + L.WAITS_LATE]:
            before = m[before + L.DEADLINE_LINK]
        insert_after(m, m[s + L.DEADLINES], g, L.DEADLINE_LINK, before)


@inlined
def _let_in(m: Ints, s: int, g: int, size: int) -> None:
    """Charge the permit of the newcomer that goes next, and wake it."""
    permit = g + m[s + L.PERMITS]
    if m[L.IN_TURNS]:
        turns.pay(m, s, g, m[permit + L.KEY], size)
    else:
        unlink(m, s, g, L.WAIT_LINK)
        m[s + L.COUNT] -= 1
    unwatch(m, s, g)
    _resize(m, s, permit, size)
    m[permit + L.CLAIMED] = L.HOLDING
    m[g + L.WAITS_AT] = 0
    soon(m, g)


@compiled
def serve(m: Ints, s: int) -> None:
    """Serve those who may go now: growers first, but a key in debt lets the first newcomer pass if that fits.

    There is a bound to how many; the rest go when those have run.
    """
    for _ in range(m[L.AT_ONCE]):
        growth = m[s + L.GROWERS]
        if growth == 0 and m[s + L.COUNT] == 0:
            return
        permit = growth + m[s + L.PERMITS]
        line = turns.lead(m, s) if m[L.IN_TURNS] else s
        newcomer = m[line + L.HEAD] if line != 0 else 0
        if newcomer != 0 and (growth == 0 or (m[L.IN_TURNS] and turns.behind(m, s, m[permit + L.KEY]))):
            size = _room_for(m, s, m[newcomer + L.WAITS_FOR])
            if size != MUST_WAIT:
                _let_in(m, s, newcomer, size)
                continue
        if growth == 0 or not _may_grow(m, s, permit, m[growth + L.WAITS_FOR]):
            return
        unlink(m, s + L.GROWERS, growth, L.WAIT_LINK)
        unwatch(m, s, growth)
        _grow(m, s, permit, m[growth + L.WAITS_FOR])
        m[growth + L.WAITS_AT] = 0
        soon(m, growth)
    rest = s + L.REST
    if m[rest + L.STATE] == 0:
        m[rest + L.STATE] = L.SERVES_REST
        soon(m, rest)


@inlined
def serve_rest(m: Ints, rest: int) -> None:
    """Serve those who were left."""
    m[rest + L.STATE] = 0
    serve(m, rest - L.REST)


@inlined
def _queue(m: Ints, s: int, g: int, n: int, since: int) -> int:
    """Enqueue a group that waits for its permit, if it may wait."""
    if m[s + L.DEADLINES] != 0 and since + m[s + L.TIMEOUT] <= m[L.NOW]:
        return TOO_LATE
    if m[s + L.COUNT] >= m[s + L.MAX_QUEUE] > 0:
        return FULL
    permit = g + m[s + L.PERMITS]
    m[g + L.WAITS_FOR] = n
    m[g + L.WAITS_AT] = s
    if m[L.IN_TURNS]:
        turns.take_in(m, s, g, m[permit + L.KEY])
    else:
        push(m, s, g, L.WAIT_LINK)
        m[s + L.COUNT] += 1
    _watch(m, s, g, since)
    m[permit + L.CLAIMED] = L.WAITING
    return WAITS


@compiled
def acquire(m: Ints, s: int, g: int, n: int, since: int) -> int:
    """Charge `n`, or enqueue the group to wait for it; its time counts from `since`, and its claim has been made."""
    permit = g + m[s + L.PERMITS]
    size = _room_for(m, s, n)
    may_go = size != MUST_WAIT
    if may_go and n != 0:
        may_go = turns.admits(m, s, m[permit + L.KEY], n) if m[L.IN_TURNS] else m[s + L.COUNT] == 0
    if may_go:
        if size and m[L.IN_TURNS]:
            turns.pay_at_once(m, s, m[permit + L.KEY], size)
        _resize(m, s, permit, size)
        m[permit + L.CLAIMED] = L.HOLDING
        return GRANTED
    return _queue(m, s, g, n, since)


@inlined
def shrink(m: Ints, s: int, g: int, n: int) -> None:
    """Release a part of a group's permit, down to `n`."""
    permit = g + m[s + L.PERMITS]
    _resize(m, s, permit, n)
    if m[L.IN_TURNS]:
        turns.freed(m, s, m[permit + L.KEY])
    serve(m, s)


@inlined
def release(m: Ints, s: int, g: int) -> None:
    """Release the whole permit of a group; does nothing if the group has none."""
    permit = g + m[s + L.PERMITS]
    if m[permit + L.CLAIMED] == L.HOLDING:
        m[permit + L.CLAIMED] = L.NOTHING
        shrink(m, s, g, L.ZERO)


@inlined
def try_update(m: Ints, s: int, g: int, n: int) -> bool:
    """Shrink a group's permit, or let it grow if nobody else overshoots; returns whether that was done."""
    permit = g + m[s + L.PERMITS]
    size = m[permit + L.SIZE]
    if n > size:
        if not _may_grow(m, s, permit, n):
            return False
        _grow(m, s, permit, n)
        serve(m, s)
    elif n < size:
        shrink(m, s, g, n)
    return True


@inlined
def update(m: Ints, s: int, g: int, n: int) -> int:
    """Change a group's permit, or have the group wait for that."""
    if try_update(m, s, g, n):
        return GRANTED
    if m[s + L.TIMEOUT] <= 0:
        return TOO_LATE
    m[g + L.WAITS_FOR] = n
    m[g + L.WAITS_AT] = s
    push(m, s + L.GROWERS, g, L.WAIT_LINK)
    _watch(m, s, g, m[L.NOW])
    return WAITS


@inlined
def leave(m: Ints, s: int, g: int) -> None:
    """Take a group out of the line it waits in, and serve those it held up."""
    permit = g + m[s + L.PERMITS]
    m[g + L.WAITS_AT] = 0
    if m[permit + L.CLAIMED] == L.HOLDING:
        unlink(m, s + L.GROWERS, g, L.WAIT_LINK)
    else:
        m[permit + L.CLAIMED] = L.NOTHING
        if m[L.IN_TURNS]:
            turns.let_go(m, s, g, m[permit + L.KEY])
        else:
            unlink(m, s, g, L.WAIT_LINK)
            m[s + L.COUNT] -= 1
    unwatch(m, s, g)
    serve(m, s)
