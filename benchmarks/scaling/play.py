"""Let the time of a storm pass, in small steps. Pure: no clock, no I/O, fixed dice.

Clients are cohorts, not single ones. Each resource (the loop of a proxy, its link, a broker, the machine that several
processes share) does in a step what its capacity allows, in equal parts for all that asks for it. Equal requests share
a question as the proxy's groups do (`proxy/requests/topic_lists/groups.py`): a group takes joiners until its question
is written, and the next question goes when the answer to the one before begins. Nobody gives up and comes again:
`Outcome.late` says who would have.
"""

import random
from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

from benchmarks.scaling.model import LATE_SECONDS, Costs, Fleet, Outcome, Stage, Storm, classes, shares

# In a larger fleet, sorted by load, one proxy stands for those beside it.
MOST_CLASSES: Final = 12
# topicListMaxOutstandingPerBroker
OUTSTANDING: Final = 64
OWN_LIST: Final = -1


@dataclass(slots=True)
class Group:
    """The requests of a proxy for one list: those on the wire, and those that form the next group."""

    joining: int = 0
    on_wire: int = 0
    # The next question waits until the requests that had come before the last answer have joined.
    due_after: int = 0


class Proxy:
    """A proxy, or `weight` proxies that are alike."""

    def __init__(self, storm: Storm, fleet: Fleet, costs: Costs, clients: int, weight: int) -> None:
        self.clients, self.weight = clients, weight
        self.connecting = Stage(costs.connect)
        self.asking = Stage(costs.request)
        self.reading = Stage(costs.read_byte * storm.list_bytes)
        self.writing = Stage(costs.write_byte * storm.list_bytes)
        self.loop = (self.connecting, self.asking, self.reading, self.writing)
        self.sending = Stage(storm.list_bytes / fleet.out_rate(storm))
        self.arrived = self.taken = self.served = 0
        # Lists that nobody shares: not asked for yet, at a broker.
        self.unasked = self.outstanding = 0
        self.groups: dict[int, Group] = {}
        self.next_key = 0
        # (step, clients) that are connected and have a request under way; that came and are not served.
        self.on_way: deque[tuple[int, int]] = deque()
        self.came: deque[tuple[int, int]] = deque()
        # (lists, members of each) that are being read.
        self.answers: deque[tuple[int, int]] = deque()

    @property
    def wanted(self) -> float:
        """Return the seconds of a processor that would end all work at hand."""
        return sum(stage.wanted for stage in self.loop)

    @property
    def seconds(self) -> float:
        """Return the seconds of a processor so far."""
        return sum(stage.busy for stage in self.loop)


@dataclass(slots=True)
class Question:
    """Questions in the line of a broker: of a proxy for one list, or for `lists` lists that nobody shares."""

    proxy: Proxy
    key: int
    members: int
    lists: int
    left: int
    told: int = 0


class Broker:
    """A broker lists one namespace after the other, on some cores; its answers pass its link."""

    def __init__(self, storm: Storm, fleet: Fleet, costs: Costs) -> None:
        self.listing = Stage(costs.name * storm.names)
        self.sending = Stage(storm.list_bytes / fleet.broker_link)
        self.line: deque[Question] = deque()

    def put(self, question: Question) -> None:
        self.line.append(question)
        self.listing.waiting += question.left

    def answered(self, count: int) -> Iterator[tuple[Question, int]]:
        """Yield the questions of which some are answered, the oldest first, and how many lists each proxy has."""
        while count:
            first = self.line[0]
            now = min(count, first.left)
            first.left -= now
            count -= now
            # Proxies that are alike have their answers in turns: all have one when the last of them has.
            whole = first.lists - -(-first.left // first.proxy.weight)
            if whole > first.told:
                yield first, whole - first.told
                first.told = whole
            if not first.left:
                self.line.popleft()


@dataclass(slots=True)
class _Books:
    questions: int = 0
    connected_step: int = 0
    served_step: int = 0
    waits: Counter[int] = field(default_factory=Counter)
    served: list[float] = field(default_factory=list)
    asked: list[float] = field(default_factory=list)


class Simulation:
    """A storm over a fleet; `play` returns what became of it."""

    def __init__(self, storm: Storm, fleet: Fleet, costs: Costs, *, seed: int = 1, step: float = 0.005) -> None:
        self.storm, self.fleet, self.step = storm, fleet, step
        loads = _loads(storm.clients, fleet, random.Random(seed))
        self.proxies = [Proxy(storm, fleet, costs, clients, weight) for clients, weight in classes(loads, MOST_CLASSES)]
        self.brokers = [Broker(storm, fleet, costs) for _ in range(fleet.brokers)]
        self._clients = Stage(costs.client_request + costs.client_byte * storm.list_bytes)
        self._unread: deque[tuple[Proxy, int]] = deque()
        self._trip = max(1, round(fleet.round_trip / step))
        self._on_way: deque[tuple[int, Question, int]] = deque()
        self._turn = 0
        self._books = _Books()

    def play(self, most_seconds: float = 600.0) -> Outcome:
        """Return what became of the storm; the end is when all are served, or after `most_seconds`."""
        now = 0
        while now * self.step < most_seconds and any(proxy.served < proxy.clients for proxy in self.proxies):
            self._one_step(now)
            now += 1
        return self._outcome(now)

    def _one_step(self, now: int) -> None:
        for proxy in self.proxies:
            self._arrive(proxy, now)
        while self._on_way and self._on_way[0][0] <= now:
            self._begin_answer(*self._on_way.popleft()[1:])
        capacity = iter(self._capacities())
        for proxy in self.proxies:
            self._work(proxy, next(capacity), now)
        for broker in self.brokers:
            broker.sending.waiting += broker.listing.work(next(capacity))
            for question, count in broker.answered(broker.sending.work(self.step)):
                self._on_way.append((now + self._trip, question, count))
        if self.fleet.machine_cores is not None:
            self._clients_read(self._clients.work(next(capacity)), now)
        self._books.served.append(sum(proxy.served * proxy.weight for proxy in self.proxies))
        self._books.asked.append(self._books.questions)

    def _capacities(self) -> list[float]:
        """Return the seconds of a processor for each proxy, each broker, and the clients if they share the machine."""
        cores = self.fleet.broker_cores
        if self.fleet.machine_cores is None:
            return [self.step] * len(self.proxies) + [self.step * cores] * len(self.brokers)
        wanted = [min(proxy.wanted, self.step) for proxy in self.proxies]
        wanted += [min(broker.listing.wanted, self.step * cores) for broker in self.brokers]
        return shares([*wanted, self._clients.wanted], self.fleet.machine_cores * self.step)

    def _arrive(self, proxy: Proxy, now: int) -> None:
        steps = max(1, round(self.storm.window / self.step))
        due = proxy.clients * min(now + 1, steps) // steps
        come, proxy.arrived = due - proxy.arrived, due
        if come:
            proxy.came.append((now, come))
            stage = proxy.asking if self.fleet.connected else proxy.connecting
            stage.waiting += come

    def _work(self, proxy: Proxy, seconds: float, now: int) -> None:
        while proxy.on_way and proxy.on_way[0][0] <= now:
            proxy.asking.waiting += proxy.on_way.popleft()[1]
        parts = shares([stage.wanted for stage in proxy.loop], seconds)
        connected, asked, read, written = (stage.work(part) for stage, part in zip(proxy.loop, parts, strict=True))
        if connected:
            self._books.connected_step = now + 1
            proxy.on_way.append((now + self._trip, connected))
        self._join(proxy, asked)
        self._ask(proxy)
        _be_read(proxy, read)
        proxy.sending.waiting += written
        sent = proxy.sending.work(self.step)
        if self.fleet.machine_cores is None:
            self._serve(proxy, sent, now)
        elif sent:
            self._clients.waiting += sent
            self._unread.append((proxy, sent))

    def _join(self, proxy: Proxy, count: int) -> None:
        """Add requests to the groups of their lists, list after list."""
        proxy.taken += count
        keys = self.storm.namespaces
        if not keys:
            proxy.unasked += count
            return
        for number in range(min(count, keys)):
            group = proxy.groups.setdefault((proxy.next_key + number) % keys, Group())
            group.joining += count // keys + (number < count % keys)
        proxy.next_key = (proxy.next_key + count) % keys

    def _ask(self, proxy: Proxy) -> None:
        """Put the questions that may go."""
        for key, group in proxy.groups.items():
            if group.joining and not group.on_wire and proxy.taken >= group.due_after:
                group.on_wire, group.joining = group.joining, 0
                self._put(key % len(self.brokers), Question(proxy, key, group.on_wire, 1, proxy.weight))
        brokers = len(self.brokers)
        count = min(proxy.unasked, OUTSTANDING * brokers - proxy.outstanding)
        if count <= 0:
            return
        proxy.unasked -= count
        proxy.outstanding += count
        for number in range(min(count, brokers)):
            lists = count // brokers + (number < count % brokers)
            self._put((self._turn + number) % brokers, Question(proxy, OWN_LIST, 1, lists, lists * proxy.weight))
        self._turn += count

    def _put(self, broker: int, question: Question) -> None:
        self._books.questions += question.left
        self.brokers[broker].put(question)

    def _begin_answer(self, question: Question, count: int) -> None:
        """Take answers that begin: their slots are free, and the next group of that list may ask."""
        proxy = question.proxy
        if question.key == OWN_LIST:
            proxy.outstanding -= count
        else:
            group = proxy.groups[question.key]
            group.on_wire = 0
            # A loop takes what came before the answer first.
            group.due_after = proxy.taken + proxy.asking.waiting
        proxy.reading.waiting += count
        proxy.answers.append((count, question.members))

    def _clients_read(self, count: int, now: int) -> None:
        while count:
            proxy, unread = self._unread.popleft()
            read = min(count, unread)
            self._serve(proxy, read, now)
            count -= read
            if read < unread:
                self._unread.appendleft((proxy, unread - read))

    def _serve(self, proxy: Proxy, count: int, now: int) -> None:
        if count:
            self._books.served_step = now + 1
        proxy.served += count
        while count:
            came, clients = proxy.came.popleft()
            served = min(count, clients)
            self._books.waits[now + 1 - came] += served * proxy.weight
            count -= served
            if served < clients:
                proxy.came.appendleft((came, clients - served))

    def _outcome(self, steps: int) -> Outcome:
        books, step, size = self._books, self.step, self.storm.list_bytes
        waited = sum(count for wait, count in books.waits.items() if wait * step > LATE_SECONDS)
        served = sum(proxy.served * proxy.weight for proxy in self.proxies)
        unserved = sum((proxy.clients - proxy.served) * proxy.weight for proxy in self.proxies)
        return Outcome(
            served_seconds=books.served_step * step,
            connected_seconds=books.connected_step * step,
            questions=books.questions,
            broker_bytes=float(books.questions * size),
            client_bytes=float(served * size),
            wait_p50=_quantile(books.waits, 0.5) * step,
            wait_p99=_quantile(books.waits, 0.99) * step,
            late=(waited + unserved) / max(1, served + unserved),
            fullest=max(proxy.clients for proxy in self.proxies),
            proxy_seconds=sum(proxy.seconds * proxy.weight for proxy in self.proxies),
            busy=self._busy(steps * step),
            step=step,
            served=books.served,
            asked=books.asked,
        )

    def _busy(self, seconds: float) -> dict[str, float]:
        slow = self.fleet.out_rate(self.storm) < self.fleet.link
        links = "direct memory, held by the clients' links" if slow else "the proxies' links"
        listing = max(broker.listing.busy for broker in self.brokers) / self.fleet.broker_cores
        found = {
            "the proxies' processors": max(proxy.seconds for proxy in self.proxies),
            links: max(proxy.sending.busy for proxy in self.proxies),
            "the brokers": listing,
            "the brokers' links": max(broker.sending.busy for broker in self.brokers),
        }
        return {name: busy / max(seconds, self.step) for name, busy in found.items()}


def _loads(clients: int, fleet: Fleet, dice: random.Random) -> list[int]:
    """Return the clients of each proxy: evenly, or as a balancer spreads them that knows nothing."""
    proxies = fleet.proxies
    if fleet.connected:
        return [clients // proxies + (number < clients % proxies) for number in range(proxies)]
    mean = clients / proxies
    spread = (mean * (1 - 1 / proxies)) ** 0.5
    loads = [max(0, round(dice.gauss(mean, spread))) for _ in range(proxies - 1)]
    return [*loads, max(0, clients - sum(loads))]


def _be_read(proxy: Proxy, count: int) -> None:
    """Move the members of lists that were read to those that wait for their writing."""
    while count:
        lists, members = proxy.answers.popleft()
        read = min(count, lists)
        proxy.writing.waiting += read * members
        count -= read
        if read < lists:
            proxy.answers.appendleft((lists - read, members))


def _quantile(waits: Counter[int], part: float) -> int:
    passed, needed = 0, part * waits.total()
    for wait, count in sorted(waits.items()):
        passed += count
        if passed >= needed:
            return wait
    return 0


def least_proxies(
    play: Callable[[int], Outcome], holds: Callable[[Outcome], bool], first: int, most: int
) -> int | None:
    """Return the smallest fleet from `first` on whose outcome holds, to a twentieth; None if none up to `most` does.

    A fleet may be too large, too: each proxy asks the brokers for itself.
    """
    proxies = first
    while proxies <= most:
        if holds(play(proxies)):
            return proxies
        proxies = max(proxies + 1, round(proxies * 1.05))
    return None
