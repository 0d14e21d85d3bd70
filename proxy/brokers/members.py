"""States of the brokers: which can be used, which is next, and when to probe which.

No I/O and no clock: callers pass the time. A member is *unknown* until a connection to it succeeds or fails, and gets
requests meanwhile. After a failure the member is *down*, gets no requests, and is probed after a pause that doubles up
to `LONGEST_PAUSE_SECONDS`. If the member did not accept TCP connections, a successful probe makes it up. If it did, a
probe proves little: the member is then on *trial*, gets a single request at a time, and is up when a request succeeds.

A member that is not down is probed at the start, and when nothing was heard of it for `idle_seconds`: this probe does
the TLS handshake and CONNECT, too, and also ends a trial for which no request has come. A member that refuses only the
proxy's own identity is *refusing*: it lives and gets requests, whose clients may be taken, until one succeeds.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from hashlib import blake2b
from typing import Final

from proxy.brokers.target import BrokerAddress

FIRST_PAUSE_SECONDS: Final = 0.05
# A broker is used again within a second of its return, and never hammered by its own proxies.
LONGEST_PAUSE_SECONDS: Final = 0.5
# The largest random part of a pause, so that many proxies do not probe a broker in step.
JITTER: Final = 0.25
# A trial without a reported result (the request used an open connection, or was given up) ends after this time.
TRIAL_SECONDS: Final = 1.0
# Probes at the start begin within this time, so that a crowd of proxies that start together does not meet.
FIRST_LOOK_SECONDS: Final = 0.25
# Probes of members that are not down, at a time.
MOST_LOOKS: Final = 8
# Keys whose broker is cached: hashing all brokers for each request would cost more than the rest of the request.
MOST_HOMES: Final = 1024


class MemberState(StrEnum):
    """The state of a member."""

    UNKNOWN = "unknown"
    REFUSING = "refusing"
    UP = "up"
    TRIAL = "trial"
    DOWN = "down"


@dataclass(slots=True)
class BrokerMember:
    """A broker. `since` is the time when it was last up; `probed_at` the end of its last probe or trial."""

    address: BrokerAddress
    state: MemberState = MemberState.UNKNOWN
    error: str = ""
    since: float = 0.0
    probed_at: float = float("-inf")
    failures: int = 0
    answers_tcp: bool = False
    probing: bool = False
    looking: bool = False
    probe_at: float = 0.0
    trial_until: float = 0.0


class BrokerMembers:
    """All members and their states. `jitter` returns numbers from 0 to 1; `idle_seconds` 0: only those that are down
    are probed.
    """

    def __init__(
        self,
        addresses: Iterable[BrokerAddress],
        jitter: Callable[[], float],
        idle_seconds: float = 0.0,
    ) -> None:
        self._jitter = jitter
        self._idle_seconds = idle_seconds
        self._members = {address: BrokerMember(address) for address in addresses}
        self._turn = 0
        self._homes: dict[str, BrokerAddress] = {}

    def __len__(self) -> int:
        return len(self._members)

    def __contains__(self, address: BrokerAddress) -> bool:
        return address in self._members

    def all(self) -> tuple[BrokerMember, ...]:
        """Return all members, which the caller must not change."""
        return tuple(self._members.values())

    def begin(self, now: float) -> None:
        """Plan the first probe of each member."""
        for member in self._members.values():
            self._plan_first(member, now)

    def replace(self, addresses: Iterable[BrokerAddress], now: float) -> bool:
        """Replace the set of members and return whether it changed; members that stay keep their state."""
        old = self._members
        self._members = {address: old.get(address) or BrokerMember(address) for address in addresses}
        for address, member in self._members.items():
            if address not in old:
                self._plan_first(member, now)
        self._homes.clear()
        return list(old) != list(self._members)

    # --- choosing ----------------------------------------------------------------------------------

    def choose(self, now: float, key: str | None = None, avoid: BrokerAddress | None = None) -> BrokerAddress | None:
        """Return a usable member, or None; not `avoid` if there is any other.

        Members take turns; with a `key` always the same member is chosen while it is usable (rendezvous hashing).
        """
        home = self._homes.get(key) if key is not None and avoid is None else None
        if home is not None:
            return home
        usable = [member for member in self._members.values() if self._usable(member, now)]
        if not usable:
            # A second request on trial is better than no request at all.
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
        """Cache the member of a key until any state changes; during a trial nothing is cached."""
        if avoid is None and not any(member.state is MemberState.TRIAL for member in self._members.values()):
            if len(self._homes) >= MOST_HOMES:
                self._homes.clear()
            self._homes[key] = chosen.address

    def home(self, key: str) -> BrokerAddress | None:
        """Return the member of `key` even if all members are down, for its error text."""
        return _nearest(list(self._members.values()), key).address if self._members else None

    def usable(self, address: BrokerAddress) -> bool:
        """Return whether requests may be sent to a member."""
        member = self._members.get(address)
        return member is not None and member.state is not MemberState.DOWN

    def _usable(self, member: BrokerMember, now: float) -> bool:
        if member.state is MemberState.TRIAL:
            return member.trial_until <= now
        return member.state is not MemberState.DOWN

    # --- reports of users --------------------------------------------------------------------------

    def failed(self, address: BrokerAddress, now: float, error: str, *, answers_tcp: bool) -> MemberState | None:
        """Record that a member could not be used; `answers_tcp`: its TCP connection succeeded.

        Return its state until now, or None if it was down already: requests that were under way fail, too.
        """
        member = self._members.get(address)
        if member is None or member.state is MemberState.DOWN:
            return None
        was = member.state
        if was is not MemberState.TRIAL:
            member.since = now
        member.state, member.error, member.answers_tcp = MemberState.DOWN, error, answers_tcp
        self._homes.clear()
        self._pause(member, now, now)
        return was

    def worked(self, address: BrokerAddress, now: float) -> MemberState | None:
        """Record that a member could be used; return its state until now if this made it up, else None."""
        member = self._members.get(address)
        if member is None:
            return None
        was, member.failures = member.state, 0
        self._heard(member, now)
        return None if was is MemberState.UP else was

    def doubted(self, address: BrokerAddress, error: str) -> None:
        """Record that a member lives but does not take this proxy; one on trial stays there."""
        member = self._members.get(address)
        if member is None or member.state is MemberState.DOWN:
            return
        member.error = error
        if member.state is not MemberState.TRIAL:
            member.state = MemberState.REFUSING

    # --- probes ------------------------------------------------------------------------------------

    def next_probe(self) -> float | None:
        """Return the time of the next probe, None if no probe is due."""
        looks = self._looks() < MOST_LOOKS
        times = [member.probe_at for member in self._members.values() if self._awaits_probe(member, looks)]
        return min(times, default=None)

    def begin_probes(
        self, now: float, in_use: Callable[[BrokerAddress], bool] = lambda _: False
    ) -> list[BrokerAddress]:
        """Return the members to probe now, each of which the caller must report.

        The report is `probed`, or `looked_at` for a member that was not down. `in_use` returns whether a connection to
        a member is open, whose end would be reported: it needs no probe.
        """
        room, due = MOST_LOOKS - self._looks(), list[BrokerAddress]()
        for member in self._members.values():
            if member.probe_at > now or not self._awaits_probe(member, room > 0):
                continue
            if member.state is not MemberState.DOWN:
                if in_use(member.address):
                    self._heard(member, now)
                    continue
                room -= 1
                member.looking = True
            else:
                member.probing = True
            due.append(member.address)
        return due

    def down(self, address: BrokerAddress) -> bool:
        """Return whether requests must not be sent to a member, so that its probe is a TCP connection only."""
        member = self._members.get(address)
        return member is not None and member.state is MemberState.DOWN

    def probed(self, address: BrokerAddress, began: float, now: float, error: str | None) -> MemberState | None:
        """Record the result of a probe of a member that is down; return the new state of one whose state changed."""
        member = self._members.get(address)
        if member is None or not member.probing:
            return None
        member.probing = False
        if member.state is not MemberState.DOWN:
            return None
        if error is None:
            member.state, member.trial_until = MemberState.TRIAL if member.answers_tcp else MemberState.UP, now
            self._plan_idle(member, now)
            self._homes.clear()
            return member.state
        member.error, member.answers_tcp = error, False
        self._pause(member, began, now)
        return None

    def looked_at(self, address: BrokerAddress, now: float) -> bool:
        """End a probe of a member that was not down when it began; return whether its result still counts."""
        member = self._members.get(address)
        if member is None or not member.looking:
            return False
        member.looking = False
        self._plan_idle(member, now)
        return member.state is not MemberState.DOWN

    def _looks(self) -> int:
        return sum(member.looking for member in self._members.values())

    def _awaits_probe(self, member: BrokerMember, looks: bool) -> bool:
        if member.state is MemberState.DOWN:
            return not member.probing
        return looks and not member.looking and self._idle_seconds > 0

    def _heard(self, member: BrokerMember, now: float) -> None:
        if member.state is not MemberState.UP:
            member.state = MemberState.UP
            self._homes.clear()
        self._plan_idle(member, now)

    def _plan_first(self, member: BrokerMember, now: float) -> None:
        member.probe_at = now + FIRST_LOOK_SECONDS * self._jitter()

    def _plan_idle(self, member: BrokerMember, now: float) -> None:
        member.probe_at = now + self._idle_seconds * (1 - JITTER * self._jitter())

    def _pause(self, member: BrokerMember, began: float, now: float) -> None:
        """Set the time of the next probe, counted from when this one *began*: a probe without answer takes long."""
        member.probed_at = now
        pause = min(LONGEST_PAUSE_SECONDS, FIRST_PAUSE_SECONDS * 2 ** min(member.failures, 32))
        member.failures += 1
        member.probe_at = max(now, began + pause * (1 - JITTER * self._jitter()))


def _nearest(members: list[BrokerMember], key: str) -> BrokerMember:
    return members[0] if len(members) == 1 else max(members, key=lambda member: _weight(key, member.address))


def _weight(key: str, address: BrokerAddress) -> bytes:
    return blake2b(f"{key}\n{address}".encode(errors="replace"), digest_size=8).digest()
