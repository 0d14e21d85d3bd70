"""Know who the brokers are, which of them can be reached, whose turn it is, and when to look at one that is down.

A core without I/O and clock: every method gets the time. A member is *up* until somebody could not use it, then *down*:
nobody is sent there, and it is looked at again after a pause that doubles up to `longest_pause_seconds`, one look at a
time. If it did not even answer TCP, a look that succeeds makes it up. If it did, a look proves little: it is on
*trial*, one request at a time is sent there, and only one that gets through makes it up.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from hashlib import blake2b
from typing import Final

from proxy.brokers.target import BrokerAddress

FIRST_PAUSE_SECONDS: Final = 0.05
# The part of a pause that chance may take off, so that many proxies do not look at one broker in step.
JITTER: Final = 0.25
# A trial that nobody reported the end of (the request found an open connection, or was given up) is over after this.
TRIAL_SECONDS: Final = 1.0
# Keys whose broker is remembered: hashing all brokers for each request would cost more than the rest of it.
MOST_HOMES: Final = 1024


class MemberState(StrEnum):
    """What is known of a member."""

    UP = "up"
    TRIAL = "trial"
    DOWN = "down"


@dataclass(slots=True)
class BrokerMember:
    """One broker. `since` is when it was last up; `looked_at` when the last look or trial of it ended."""

    address: BrokerAddress
    state: MemberState = MemberState.UP
    error: str = ""
    since: float = 0.0
    looked_at: float = float("-inf")
    failures: int = 0
    answers_tcp: bool = False
    looking: bool = False
    look_at: float = 0.0
    trial_until: float = 0.0


class BrokerMembers:
    """The books of all members. `jitter` gives numbers from 0 to 1."""

    def __init__(
        self, addresses: Iterable[BrokerAddress], longest_pause_seconds: float, jitter: Callable[[], float]
    ) -> None:
        self._members = {address: BrokerMember(address) for address in addresses}
        self.longest_pause_seconds = longest_pause_seconds
        self._jitter = jitter
        self._turn = 0
        self._homes: dict[str, BrokerAddress] = {}

    def __len__(self) -> int:
        return len(self._members)

    def __contains__(self, address: BrokerAddress) -> bool:
        return address in self._members

    def all(self) -> tuple[BrokerMember, ...]:
        """Give all members; they are to be looked at, not to be changed."""
        return tuple(self._members.values())

    def replace(self, addresses: Iterable[BrokerAddress]) -> bool:
        """Take over another set of members: who stays keeps what is known of it. Tells whether anything changed."""
        old = self._members
        self._members = {address: old.get(address) or BrokerMember(address) for address in addresses}
        self._homes.clear()
        return list(old) != list(self._members)

    # --- whose turn -------------------------------------------------------------------------------

    def choose(self, now: float, key: str | None = None, avoid: BrokerAddress | None = None) -> BrokerAddress | None:
        """Give a member that can be used, or None; not `avoid` if there is any other.

        In turn; with a `key` always the same as long as that one can be used (rendezvous hashing).
        """
        home = self._homes.get(key) if key is not None and avoid is None else None
        if home is not None:
            return home
        usable = [member for member in self._members.values() if self._usable(member, now)]
        if not usable:
            # Better a second request on trial than none at all.
            usable = [member for member in self._members.values() if member.state is MemberState.TRIAL]
        usable = [member for member in usable if member.address != avoid] or usable
        if not usable:
            return None
        if key is None:
            self._turn += 1
            chosen = usable[self._turn % len(usable)]
        else:
            chosen = _nearest(usable, key)
            self._remember(key, chosen, avoid)
        if chosen.state is MemberState.TRIAL:
            chosen.trial_until = now + TRIAL_SECONDS
        return chosen.address

    def _remember(self, key: str, chosen: BrokerMember, avoid: BrokerAddress | None) -> None:
        """Keep where a key belongs until anything changes; a trial is a change by itself."""
        if avoid is None and not any(member.state is MemberState.TRIAL for member in self._members.values()):
            if len(self._homes) >= MOST_HOMES:
                self._homes.clear()
            self._homes[key] = chosen.address

    def home(self, key: str) -> BrokerAddress | None:
        """Give the member where `key` belongs if all are down: that its error may be told."""
        return _nearest(list(self._members.values()), key).address if self._members else None

    def usable(self, address: BrokerAddress) -> bool:
        """Tell whether a member is one that requests may be sent to."""
        member = self._members.get(address)
        return member is not None and member.state is not MemberState.DOWN

    def _usable(self, member: BrokerMember, now: float) -> bool:
        return member.state is MemberState.UP or (member.state is MemberState.TRIAL and member.trial_until <= now)

    # --- what is heard of them --------------------------------------------------------------------

    def failed(self, address: BrokerAddress, now: float, error: str, *, answers_tcp: bool) -> MemberState | None:
        """Hear that a member could not be used, and whether it had answered TCP. Gives what it was until now, or None
        if this says nothing new: those who were on their way when it went down fail, too.
        """
        member = self._members.get(address)
        if member is None or member.state is MemberState.DOWN:
            return None
        was = member.state
        if was is MemberState.UP:
            member.since = now
        member.state, member.error, member.answers_tcp = MemberState.DOWN, error, answers_tcp
        self._homes.clear()
        self._pause(member, now, now)
        return was

    def worked(self, address: BrokerAddress) -> bool:
        """Hear that a member could be used. Tells whether it is up by this."""
        member = self._members.get(address)
        if member is None:
            return False
        was, member.state, member.failures = member.state, MemberState.UP, 0
        if was is not MemberState.UP:
            self._homes.clear()
        return was is not MemberState.UP

    # --- looks ------------------------------------------------------------------------------------

    def next_look(self) -> float | None:
        """Tell when the next member is to be looked at."""
        times = [member.look_at for member in self._members.values() if _waits_for_a_look(member)]
        return min(times, default=None)

    def begin_looks(self, now: float) -> list[BrokerAddress]:
        """Give the members to be looked at now; each of them must be reported by `looked`."""
        due = [m for m in self._members.values() if _waits_for_a_look(m) and m.look_at <= now]
        for member in due:
            member.looking = True
        return [member.address for member in due]

    def looked(self, address: BrokerAddress, began: float, now: float, error: str | None) -> MemberState | None:
        """Hear how a look ended: TCP was answered, or `error`. Gives what the member has become by this."""
        member = self._members.get(address)
        if member is None or not member.looking:
            return None
        member.looking = False
        if member.state is not MemberState.DOWN:
            return None
        if error is None:
            member.state, member.trial_until = MemberState.TRIAL if member.answers_tcp else MemberState.UP, now
            self._homes.clear()
            return member.state
        member.error, member.answers_tcp = error, False
        self._pause(member, began, now)
        return None

    def _pause(self, member: BrokerMember, began: float, now: float) -> None:
        """Set the next look: so long after this one *began*, for one that gets no answer takes time of its own."""
        member.looked_at = now
        pause = min(self.longest_pause_seconds, FIRST_PAUSE_SECONDS * 2 ** min(member.failures, 32))
        member.failures += 1
        member.look_at = max(now, began + pause * (1 - JITTER * self._jitter()))


def _waits_for_a_look(member: BrokerMember) -> bool:
    return member.state is MemberState.DOWN and not member.looking


def _nearest(members: list[BrokerMember], key: str) -> BrokerMember:
    return members[0] if len(members) == 1 else max(members, key=lambda member: _weight(key, member.address))


def _weight(key: str, address: BrokerAddress) -> bytes:
    return blake2b(f"{key}\n{address}".encode(errors="replace"), digest_size=8).digest()
