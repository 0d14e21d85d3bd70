"""Choose the client that leaves for a newcomer when all places of connections are taken.

The first of these that there is, each of the address (an IPv6 /64 network) with most of its kind:

- a client that has proven nothing and is silent or idle, or a quiet relay to a host that its client made up: of these
  two kinds first the one of which an address has more. The address has more than twice what the newcomer's has of all
- a client in lookup mode that is at work; then a relay to such a host that is at work; then a relay to a known broker,
  a quiet one first. The address has more than eight times what the newcomer's has of all, and a thousandth of the
  places may change hands so in a second: who comes and goes from many addresses must not unseat those who work

So an address that holds all places, by whatever it does, keeps nobody out. The networks of an IPv6 site (/48)
count as one first; then those of the newcomer's own site are compared in the same way. No I/O and no clock here.
"""

from collections.abc import Iterator
from functools import partial
from typing import Final, Generic, TypeVar

from proxy.clients.crowds import IDLE_FACTOR, Crowds, Unproven
from proxy.relay.engine import Relay
from proxy.relay.relay_crowds import RelayCrowds

# Clients at work leave for an address that has less than this part of their address's.
WORK_FACTOR: Final = 8
# The part of all places that may be taken from those at work in a second; one place at least.
WORK_PART_A_SECOND: Final = 0.001
# Seconds of that rate that a lull saves up.
WORK_BURST_SECONDS: Final = 10

U = TypeVar("U", bound=Unproven)


class Newcomers(Generic[U]):
    """Chooses among the clients of `crowds` and the relays of `relays` who leaves."""

    __slots__ = ("_at", "_saved", "crowds", "relays")

    def __init__(self) -> None:
        self.crowds: Crowds[U] = Crowds()
        self.relays: RelayCrowds = RelayCrowds()
        self._at = float("-inf")
        self._saved = 0.0

    @property
    def may_come(self) -> bool:
        """Return whether somebody may leave for an address that has nothing."""
        relays = self.relays
        return self.crowds.gives_way(None) or relays.most_strangers > IDLE_FACTOR or relays.most_known > WORK_FACTOR

    def victim(self, address: str, now: float, places: int) -> U | Relay | None:
        """Return who leaves, of `places` that are all taken, for a newcomer of `address`."""
        idle = self._idle(address, now)
        if idle is not None or not self._may_end_work(now, places):
            return idle
        worker = next((each for each in self._at_work(address, now) if each is not None), None)
        self._saved -= worker is not None
        return worker

    def _idle(self, address: str, now: float) -> U | Relay | None:
        crowds, relays = self.crowds, self.relays
        heavier = partial(crowds.heavier, address, IDLE_FACTOR)
        if relays.most_strangers > crowds.most:
            return relays.quiet_stranger(heavier, now) or crowds.victim(address, now)
        return crowds.victim(address, now) or relays.quiet_stranger(heavier, now)

    def _at_work(self, address: str, now: float) -> Iterator[U | Relay | None]:
        heavier = partial(self.crowds.heavier, address, WORK_FACTOR)
        yield self.crowds.youngest(address, WORK_FACTOR)
        yield self.relays.busy_stranger(heavier)
        yield self.relays.known(heavier, now)

    def _may_end_work(self, now: float, places: int) -> bool:
        rate = max(1.0, places * WORK_PART_A_SECOND)
        most = rate * WORK_BURST_SECONDS
        self._saved = most if self._at == float("-inf") else min(most, self._saved + rate * (now - self._at))
        self._at = now
        return self._saved >= 1
