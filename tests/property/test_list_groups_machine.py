"""Drive the whole topic-list path with generated storms in virtual time; no client ever gets a list that is too old.

Only sockets are not real (tests/support/proxies/list_stage.py). Topics are created between requests, brokers answer in
pieces, fail or lose their connections, clients stall, give up and leave, limits change. At the end every broker answers
and every client reads: then each request has exactly one answer, and nothing is left.
"""

from collections import Counter
from dataclasses import dataclass

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from protocol.commands import request_id_of
from protocol.errors import ServerError
from protocol.pb import PulsarApi_pb2 as pb
from protocol.topic_list import heap_size
from proxy.brokers.target import BrokerAddress
from proxy.requests.topic_lists.groups import GroupKey
from tests.support.clients.list_clients import ListClient, commands_in
from tests.support.proxies.counted import counted
from tests.support.proxies.list_stage import BROKER, KIB, Asked, BrokerEnd, ListStage, Sizes

NAMESPACES = st.sampled_from(["t/a", "t/a", "t/a", "u/b"])
SIZES = st.sampled_from([10, 10, 2 * KIB, 8 * KIB, 8 * KIB, 20 * KIB, 40 * KIB])
TURNS = st.sampled_from([0, 1, 2, 3, 12])
PICK = st.integers(0, 1000)
LIMITS = st.sampled_from([32 * KIB, 32 * KIB, 16 * KIB, 100 * KIB, 0])
PRINCIPALS = ("alice", "alice", "alice", "bob")
MAX_ANSWER = 32 * KIB
FRAME_LIMIT = 10 * KIB


@dataclass(eq=False)
class Request:
    """What the model knows of a request: who asked, for what, and what topics there were then."""

    client: ListClient
    namespace: str
    version: int
    principal: str


class ListGroupsMachine(RuleBasedStateMachine):
    """The topic-list path beside a model that knows who asked when."""

    @initialize(
        heap=LIMITS, direct=LIMITS, max_queue=st.sampled_from([0, 0, 2]), shares=st.booleans(), several=st.booleans()
    )
    def begin(self, heap: int, direct: int, max_queue: int, shares: bool, several: bool) -> None:
        self.stage = ListStage(Sizes(heap, direct, max_queue, share_by_key=shares))
        if several:
            # Beside another broker the answers of this one wait for room.
            self.stage.queues.queue(BrokerAddress("other", 6650))
        self.requests: dict[int, Request] = {}
        self.answers: Counter[int] = Counter()
        self.refusals: Counter[int] = Counter()
        self.clients: list[ListClient] = []
        for number, principal in enumerate(PRINCIPALS):
            self.connect(principal, number == 1)

    def connect(self, principal: str, small: bool = False) -> None:
        limit = FRAME_LIMIT if small else 1 << 40
        self.clients.append(self.stage.client(principal, max_frame_bytes=limit))

    # Rules: clients

    @rule(namespace=NAMESPACES)
    def create_topic(self, namespace: str) -> None:
        self.stage.versions[namespace] = self.stage.versions.get(namespace, 0) + 1

    @rule(pick=PICK, namespace=NAMESPACES, turns=TURNS)
    def ask(self, pick: int, namespace: str, turns: int) -> None:
        client = self.clients[pick % len(self.clients)]
        version = self.stage.versions.get(namespace, 0)
        request_id = self.stage.ask(client, namespace)
        self.requests[request_id] = Request(client, namespace, version, str(client.principal))
        self.stage.step(turns)

    @rule(namespace=NAMESPACES, picks=st.lists(PICK, min_size=2, max_size=5))
    def burst(self, namespace: str, picks: list[int]) -> None:
        for pick in picks:
            self.ask(pick, namespace, 0)

    @rule(pick=PICK, turns=TURNS)
    def leave(self, pick: int, turns: int) -> None:
        client = self.clients.pop(pick % len(self.clients))
        self.stage.call(client.leave)
        self.requests = {number: kept for number, kept in self.requests.items() if kept.client is not client}
        self.connect(str(client.principal))
        self.stage.step(turns)

    @rule(pick=PICK)
    def stall(self, pick: int) -> None:
        self.clients[pick % len(self.clients)].socket.room = 100

    @rule(pick=PICK, count=st.sampled_from([50, 3 * KIB, 1 << 40]))
    def read(self, pick: int, count: int) -> None:
        self.stage.call(self.clients[pick % len(self.clients)].read, count)
        self.stage.step()

    # Rules: brokers

    @rule(pick=PICK, size=SIZES, turns=TURNS)
    def broker_begins(self, pick: int, size: int, turns: int) -> None:
        if (asked := self._at_the_broker(pick)) is not None:
            self.stage.call(asked.broker.begin, asked, size)
        self.stage.step(turns)

    @rule(count=st.sampled_from([100, 5 * KIB, 1 << 20]), turns=TURNS)
    def bodies_go_on(self, count: int, turns: int) -> None:
        for asked in [asked for asked in self.stage.asked() if asked.begun]:
            if not asked.broker.connection.paused:
                self.stage.call(asked.broker.go_on, asked, count)
        self.stage.step(turns)

    @rule(pick=PICK, code=st.sampled_from([ServerError.TopicNotFound, ServerError.AuthorizationError]))
    def broker_fails(self, pick: int, code: int) -> None:
        if (asked := self._at_the_broker(pick)) is not None:
            self.stage.call(asked.broker.fail, asked, code)
        self.stage.step()

    @rule(pick=PICK, turns=TURNS)
    def connection_is_lost(self, pick: int, turns: int) -> None:
        if asked := self.stage.asked():
            self.stage.call(asked[pick % len(asked)].broker.lose)
        self.stage.step(turns)

    # Rules: time and limits

    @rule(seconds=st.sampled_from([0.5, 4.0, 11.0, 21.0]))
    def time_passes(self, seconds: float) -> None:
        self.stage.advance(seconds)

    @rule(seconds=st.sampled_from([1, 3, 6]))
    def brokers_are_judged(self, seconds: int) -> None:
        for _ in range(seconds):
            self.stage.advance(1.0)
            self.stage.call(self.stage.service.arriving.sweep, self.stage.loop.time(), 5 * KIB)
            self.stage.step()

    @rule(limit=LIMITS, direct=st.booleans())
    def set_limit(self, limit: int, direct: bool) -> None:
        self.stage.call((self.stage.limiter.direct if direct else self.stage.limiter.heap).set_limit, limit)
        self.stage.step()

    @rule()
    def settle(self) -> None:
        self.stage.step()

    # Invariants

    @invariant()
    def no_list_is_too_old_or_somebody_elses(self) -> None:
        for client in self.clients:
            commands, end = commands_in(bytes(client.socket.peer_bytes))
            del client.socket.peer_bytes[:end]
            for command in commands:
                number = request_id_of(command)
                request = self.requests.get(number)
                assert request is not None, f"answer to {number}, which nobody asked"
                assert request.client is client
                if command.type == pb.BaseCommand.ERROR:
                    self.refusals[number] += 1
                else:
                    self._judge(request, command.getTopicsOfNamespaceResponse)
                self.answers[number] += 1
                assert self.answers[number] == 1, "answered twice"

    @invariant()
    def equal_requests_have_one_question_on_the_wire(self) -> None:
        on_the_wire = Counter(
            GroupKey.of(BROKER, asked.broker.principal, asked.request)
            for asked in self.unbegun()
            if not asked.abandoned
        )
        # One whose connection was lost is asked once more, while its successor asks too.
        assert max(on_the_wire.values(), default=0) <= 1 + counted(self.stage.counters, "lists_asked_again")

    @invariant()
    def permits_are_those_of_live_groups_each_counted_once(self) -> None:
        limiter, books = self.stage.limiter, self.stage.books()
        unread = sum(client.output.held_bytes for client in self.stage.clients)
        assert limiter.heap.held <= books["work"] * heap_size(MAX_ANSWER)
        assert limiter.direct.held <= books["live"] * (MAX_ANSWER + 100) + unread
        assert sum(held for _, held in limiter.heap.top_holders(1000)) == limiter.heap.held

    @invariant()
    def nothing_unexpected_was_reported(self) -> None:
        assert self.stage.reports == []
        assert [client.crashes for client in self.stage.clients if client.crashes] == []

    # The end

    def teardown(self) -> None:
        if not hasattr(self, "stage"):
            return
        try:
            self._finish()
            missing = self.requests.keys() - self.answers.keys()
            assert not missing, f"never answered: {missing}, books {self.stage.books()}"
            assert not any(self.stage.books().values()), self.stage.books()
            assert all(client.output.write_lock.free for client in self.clients)
        finally:
            self.stage.close()
        self._judge_events()

    def _finish(self) -> None:
        """Let every client read and every broker answer, without time passing."""
        for _ in range(200):
            for client in self.clients:
                self.stage.call(client.read)
            self.stage.step()
            for broker in self.stage.brokers:
                self._answer_all(broker)
            self.no_list_is_too_old_or_somebody_elses()
            if self.requests.keys() <= self.answers.keys() and not any(self.stage.books().values()):
                return

    def _answer_all(self, broker: BrokerEnd) -> None:
        for asked in sorted(broker.questions, key=lambda asked: not asked.begun):
            if not broker.open or broker.connection.paused:
                return
            if not asked.begun:
                self.stage.call(broker.begin, asked, 10)
                self.stage.step()
            if not broker.connection.paused:
                self.stage.call(broker.go_on, asked, 1 << 20)
            self.stage.step()

    # Helpers

    def unbegun(self) -> list[Asked]:
        return [asked for asked in self.stage.asked() if not asked.begun and not asked.broker.connection.paused]

    def _at_the_broker(self, pick: int) -> Asked | None:
        """Pick a question whose answer may come now: one answer at a time on a connection."""
        free = [asked for asked in self.unbegun() if not any(other.begun for other in asked.broker.questions)]
        return free[pick % len(free)] if free else None

    def _judge_events(self) -> None:
        events = self.stage.events
        assert not events.unlike(self.stage.counters)
        for cost, held in self.stage.held_byte_us.items():
            # Each event is rounded down.
            assert abs(sum(event[cost] or 0 for event in events.kept) - held) <= len(events.groups), cost

    def _judge(self, request: Request, answer: pb.CommandGetTopicsOfNamespaceResponse) -> None:
        namespace, principal, version = answer.topics[0].split()
        assert namespace == request.namespace
        assert principal == request.principal, "principals must never share"
        assert int(version) >= request.version, "a list older than its request"


ListGroupsMachine.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestListGroups = ListGroupsMachine.TestCase
