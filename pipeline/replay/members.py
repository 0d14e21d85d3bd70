"""Who waits for an answer, in the reference: clients and their lanes, requests, and the groups that share a question.

Rules, those of docs/adr/0009: a group takes joiners until its question is written; that of the next group waits until
its answer begins. The member that is there longest pays, unless its key is at its cap. A client takes one list at
a time, which is promised before memory is asked for, and two of its requests are under way.
"""

from collections.abc import Iterable
from itertools import islice

from pipeline.replay.lines import Claim, Line, Permit
from pipeline.replay.model import Outcome
from pipeline.replay.virtual import Stopped, Task, VirtualTime, Wait

__all__ = ["PAYERS_ASKED", "Client", "Group", "Member"]

PAYERS_ASKED = 64


class Client:
    """A connection: its requests under way and behind them, and the right to write a list to it."""

    def __init__(self, time: VirtualTime) -> None:
        self._time = time
        self.under_way = 0
        self.behind: dict[Member, None] = {}
        self.listeners: dict[Group, None] = {}
        self._promised = 0
        self._writing = False
        self._next: Wait | None = None

    @property
    def free(self) -> bool:
        """Tell whether nobody writes, or is about to."""
        return not self._promised and not self._writing

    def promise(self, change: int) -> None:
        """Count one that will come with its list, or take that back."""
        self._promised += change
        if change < 0:
            self._tell()

    async def begin_to_write(self) -> None:
        """Wait until the list before has been written."""
        if self._writing or self._next is not None:
            self._next = Wait(self._time, self._give_up)
            await self._next
            self._next = None
        self._writing = True

    def end_to_write(self) -> None:
        """Let the next one write."""
        self._writing = False
        if self._next is not None:
            self._next.wake()
        self._tell()

    def _give_up(self) -> None:
        self._next = None

    def _tell(self) -> None:
        for group in self.listeners:
            group.look_again()


class Member:
    """One request; `ended` when its fate is known."""

    def __init__(self, time: VirtualTime, index: int, client: Client, key: int, arrival: int) -> None:
        self.index = index
        self.client = client
        self.key = key
        self.arrival = arrival
        self.started = arrival
        self.task: Task | None = None
        self.answer = Wait(time)
        self.clock_runs = True
        self.ended = False
        self._promised = False

    def promise(self) -> None:
        """Ask for memory only when this member's client is ready for the list."""
        self._promised = True
        self.client.promise(1)

    def redeem(self) -> None:
        """Take the promise back, if there is one."""
        if self._promised:
            self._promised = False
            self.client.promise(-1)


class _Charge:
    def __init__(self, claim: Claim, payer: Member, line: Line, n: int) -> None:
        self.claim = claim
        self.payer = payer
        self.line = line
        self.n = n


class Span:
    """A wait of a group: from when to when."""

    def __init__(self, since: int) -> None:
        self.since = since
        self.until: int | None = None

    def part_of(self, member: Member, now: int) -> int:
        """Give how much of it the member waited, if it ends now."""
        until = now if self.until is None else self.until
        return max(0, until - max(self.since, member.started))


class Group:
    """Requests that share a question; `stage` is what a timeout means where it stands."""

    def __init__(self, time: VirtualTime, leader: int, question: int) -> None:
        self._time = time
        self.leader = leader
        self.question = question
        self.members: dict[Member, None] = {}
        self.stage = Outcome.TIMEOUT_OTHER
        self.begun = False
        self.follower: Wait | None = None
        self.predecessor: Group | None = None
        self.task: Task | None = None
        self.spans: dict[str, Span] = {}
        self.direct: Permit | None = None
        self.alone = False  # one member was there when direct memory was granted
        self._charges: list[_Charge] = []
        self._reader: Wait | None = None

    def claim(self, line: Line, n: int) -> Claim:
        """Charge the payer for `n`; when it leaves, the next."""
        payer = self._payer_for(line, n)
        claim = Claim(line, payer.key)
        self._charges.append(_Charge(claim, payer, line, n))
        return claim

    def add(self, member: Member) -> None:
        """Take in a member; the wait for memory is now also its own, and gets its patience."""
        self.members[member] = None
        for charge in self._charges:
            charge.claim.prolong()

    def remove(self, member: Member) -> None:
        """Let a member go; the next one pays."""
        member.redeem()
        del self.members[member]
        if self.members:
            for charge in self._charges:
                if charge.payer is member:
                    charge.payer = self._payer_for(charge.line, charge.n)
                    charge.claim.recharge(charge.payer.key)

    def begin(self) -> None:
        """Take note that the answer begins, or never will: the next question may go."""
        self.begun = True
        if self.follower is not None:
            self.follower.wake()

    async def await_predecessor(self) -> None:
        """Wait until the answer before has begun."""
        before, self.predecessor = self.predecessor, None
        if before is not None and not before.begun:
            before.follower = Wait(self._time)
            await before.follower

    async def await_a_reader(self) -> None:
        """Wait until a client can take a list, and promise it this one."""
        clients: Iterable[Client] = {member.client: None for member in self.members}
        for client in clients:
            client.listeners[self] = None
        try:
            while not self._promised():
                self._reader = Wait(self._time)
                await self._reader
        finally:
            for client in clients:
                del client.listeners[self]

    def look_again(self) -> None:
        """Take note that some client may be able to take a list."""
        if self._reader is not None:
            self._reader.wake()

    def end_work(self) -> None:
        """Stop what is under way: nobody waits for it."""
        if self.task is not None:
            self.task.stop(Stopped())

    def _promised(self) -> bool:
        for member in self.members:
            if member.client.free:
                member.promise()
                return True
        return False

    def _payer_for(self, line: Line, n: int) -> Member:
        members = list(islice(self.members, PAYERS_ASKED))
        return next((one for one in members if not line.order.at_cap(one.key, n)), members[0])
