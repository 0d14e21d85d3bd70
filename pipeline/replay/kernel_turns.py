"""The kernel's order of newcomers whose keys go in turns: deficit round robin by bytes, as in `limiter.acquires`.

The sum that a key has spent is a place on a scale common to all, whose rounds are a quantum long; a key stands in the
ring of its round and goes when all before it have gone or had to give way. A key at its cap is parked until one of its
own permits shrinks or ends, or one that waits leaves. A key that owes is remembered while anybody waits
(docs/adr/0007).
A key of a semaphore is a row; it knows the groups that wait with it, what it has spent and what it holds.
"""

from pipeline.replay import layout as L
from pipeline.replay.compiled import Ints, compiled, inlined
from pipeline.replay.kernel_chains import enter_ring, leave_ring, push, unlink

# Debtors that are looked at with each turn.
LOOKS = L.number(8)
ANY_ROUND = L.number(1 << 62)


@inlined
def at_cap(m: Ints, s: int, key: int, n: int) -> bool:
    """Return whether a key holds too much to be let in with `n` more."""
    return bool(m[key + L.KEY_HELD] > 0 and m[key + L.KEY_HELD] + n > m[s + L.CAP])


@inlined
def _leave_chains(m: Ints, s: int, key: int) -> None:
    if m[key + L.WHERE] == L.IN_RING:
        leave_ring(m, s, key)
    m[key + L.WHERE] = L.RESTING


@compiled
def join(m: Ints, s: int, key: int) -> None:
    """Put a key that waits at the end of its round, which is not before the next."""
    _leave_chains(m, s, key)
    begins = (m[s + L.ROUND] + 1) * m[s + L.QUANTUM]
    if m[key + L.SPENT] < begins:
        m[key + L.SPENT] = begins
    m[L.ARRIVALS] += 1
    m[key + L.RING] = m[key + L.SPENT] // m[s + L.QUANTUM]
    m[key + L.PLACE] = m[L.ARRIVALS]
    m[key + L.WHERE] = L.IN_RING
    enter_ring(m, s, key)


@compiled
def _lead_until(m: Ints, s: int, last: int) -> int:
    """Return the key whose turn it is up to a round, 0 if nobody may go, after parking those before it at their cap."""
    while m[s + L.RINGS_COUNT] > 0:
        key = m[m[s + L.RINGS]]
        if m[key + L.RING] > last:
            return 0
        if not at_cap(m, s, key, m[m[key + L.HEAD] + L.WAITS_FOR]):
            return int(key)
        leave_ring(m, s, key)
        m[key + L.WHERE] = L.PARKED
    return 0


@inlined
def lead(m: Ints, s: int) -> int:
    """Return the key whose turn it is, 0 if nobody may go."""
    return _lead_until(m, s, ANY_ROUND)


@compiled
def _known(m: Ints, s: int, key: int) -> None:
    """Make a key known, and no debtor that is idle."""
    if m[key + L.WHERE] == L.UNKNOWN:
        m[key + L.SPENT] = 0
        m[key + L.WHERE] = L.RESTING
    elif m[key + L.WHERE] == L.IDLING:
        unlink(m, s + L.IDLE, key, L.KEY_LINK)
        m[s + L.IDLE_COUNT] -= 1
        m[key + L.WHERE] = L.RESTING


@compiled
def _oldest_idle(m: Ints, s: int) -> int:
    key = m[s + L.IDLE]
    unlink(m, s + L.IDLE, key, L.KEY_LINK)
    m[s + L.IDLE_COUNT] -= 1
    return int(key)


@compiled
def _owe(m: Ints, s: int, key: int) -> None:
    push(m, s + L.IDLE, key, L.KEY_LINK)
    m[s + L.IDLE_COUNT] += 1
    m[key + L.WHERE] = L.IDLING


@compiled
def rest(m: Ints, s: int, key: int) -> None:
    """Keep a key with nobody waiting only for what it owes beyond its next turn."""
    _leave_chains(m, s, key)
    if m[key + L.SPENT] <= (m[s + L.ROUND] + 1) * m[s + L.QUANTUM]:
        m[key + L.WHERE] = L.UNKNOWN
        return
    _owe(m, s, key)
    if m[s + L.IDLE_COUNT] > m[L.MOST_IDLE]:
        m[_oldest_idle(m, s) + L.WHERE] = L.UNKNOWN


@compiled
def sweep(m: Ints, s: int) -> None:
    """Look at some that owe: those who have paid are forgotten."""
    for _ in range(min(LOOKS, m[s + L.IDLE_COUNT])):
        key = _oldest_idle(m, s)
        if m[key + L.SPENT] > (m[s + L.ROUND] + 1) * m[s + L.QUANTUM]:
            _owe(m, s, key)
        else:
            m[key + L.WHERE] = L.UNKNOWN


@inlined
def forget_all(m: Ints, s: int, key: int) -> None:
    """Forget all debts: `key` was the last with anybody waiting."""
    _leave_chains(m, s, key)
    m[key + L.WHERE] = L.UNKNOWN
    while m[s + L.IDLE_COUNT] > 0:
        m[_oldest_idle(m, s) + L.WHERE] = L.UNKNOWN
    m[s + L.ROUND] = 0


@inlined
def freed(m: Ints, s: int, key: int) -> None:
    """Wake a parked key, which holds less than before, so that it tries again."""
    if m[key + L.WHERE] == L.PARKED:
        join(m, s, key)


@compiled
def take_in(m: Ints, s: int, g: int, key: int) -> None:
    """Append a group to those that wait with a key."""
    _known(m, s, key)
    push(m, key, g, L.WAIT_LINK)
    m[s + L.COUNT] += 1
    if m[key + L.WHERE] == L.RESTING:
        join(m, s, key)


@compiled
def let_go(m: Ints, s: int, g: int, key: int) -> None:
    """Take a group out of those that wait, and give its key the state that follows from it."""
    unlink(m, key, g, L.WAIT_LINK)
    m[s + L.COUNT] -= 1
    if m[s + L.COUNT] == 0:
        forget_all(m, s, key)
    elif m[key + L.HEAD] == 0:
        rest(m, s, key)
    else:
        freed(m, s, key)


@inlined
def pay(m: Ints, s: int, g: int, key: int, n: int) -> None:
    """Charge the key whose turn it is for a group that is let in, and let the group go."""
    m[s + L.ROUND] = m[key + L.RING]
    m[key + L.SPENT] += n
    let_go(m, s, g, key)
    if m[key + L.WHERE] == L.IN_RING and m[key + L.SPENT] >= (m[s + L.ROUND] + 1) * m[s + L.QUANTUM]:
        join(m, s, key)
    sweep(m, s)


@compiled
def _round_of_joining(m: Ints, s: int, key: int) -> int:
    number = m[s + L.ROUND] + 1
    if m[key + L.WHERE] == L.UNKNOWN:
        return int(number)
    return int(max(number, m[key + L.SPENT] // m[s + L.QUANTUM]))


@inlined
def admits(m: Ints, s: int, key: int, n: int) -> bool:
    """Return whether a newcomer that has just come would go before all who wait."""
    if at_cap(m, s, key, n):
        return False
    waits = m[key + L.HEAD] != 0
    first = _lead_until(m, s, ANY_ROUND if waits else _round_of_joining(m, s, key))
    return first == 0 and not waits


@inlined
def pay_at_once(m: Ints, s: int, key: int, n: int) -> None:
    """Charge a key for a permit got without waiting, if anybody waits."""
    if m[s + L.COUNT] == 0:
        return
    _known(m, s, key)
    number = _round_of_joining(m, s, key)
    m[s + L.ROUND] = number
    m[key + L.SPENT] = max(m[key + L.SPENT], number * m[s + L.QUANTUM]) + n
    rest(m, s, key)
    sweep(m, s)


@compiled
def charge(m: Ints, s: int, key: int, n: int) -> None:
    """Charge growth as debt, if anybody waits for a turn; growth below 0 gives back, but nothing of a turn."""
    if m[s + L.RINGS_COUNT] == 0:
        return
    if m[key + L.HEAD] == 0:
        _known(m, s, key)
    before, begins = m[key + L.SPENT], (m[s + L.ROUND] + 1) * m[s + L.QUANTUM]
    spent = before if m[key + L.WHERE] == L.IN_RING else max(before, begins)
    m[key + L.SPENT] = max(spent + n, min(spent, begins))
    if m[key + L.HEAD] == 0:
        rest(m, s, key)
    elif m[key + L.WHERE] == L.IN_RING and m[key + L.SPENT] != before and m[key + L.SPENT] >= begins:
        join(m, s, key)


@inlined
def behind(m: Ints, s: int, key: int) -> bool:
    """Return whether a key owes so much that its turn comes in a later round than that of the first one."""
    first = lead(m, s)
    if first == 0 or m[key + L.WHERE] == L.UNKNOWN:
        return False
    quantum = m[s + L.QUANTUM]
    return bool(m[key + L.SPENT] // quantum > m[first + L.SPENT] // quantum)
