"""The requests of one client: which service answers each, how many may be under way, and what each of them holds.

A request is outstanding from its arrival until its answer is handed to the output. Topic lists beyond the first few
of a connection wait here as they came, without a task and without a place among the lookups: a client that pipelines a
thousand costs little more than their bytes.
"""

from collections import deque
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Final, NamedTuple

from limiter.permit import Permit
from protocol import commands
from protocol.command_type import CommandType
from protocol.pb import PulsarApi_pb2 as pb
from proxy.auth.fairness_key import role_of
from proxy.config.core import Core
from proxy.core.counters import PREFIX, Declared, Number, counter_by, upstream
from proxy.core.errors import DisconnectCause
from proxy.core.loop_budget import TASK_SECONDS
from proxy.core.task_turns import LeaveTurns
from proxy.core.tasks import TaskScope
from proxy.requests.broker_turns import Asker
from proxy.requests.client import Client
from proxy.requests.forwarding import ForwardedRequest, RequestParts
from proxy.requests.lookups import LookupService
from proxy.requests.places import FEW_WAITING, Slot
from proxy.requests.schemas import SchemaService
from proxy.requests.topic_lists.service import ANSWERS, ListRequest, TopicListService
from proxy.telemetry.events.recorder import RequestOrigin, RequestRecord
from proxy.telemetry.events.reports import Reports

# Topic lists of one connection that may hold memory at once: a list being written, and a list ready to follow. With
# more, answers that wait for their own client would fill the heap limit, while clients that could read get none.
LISTS_AT_ONCE: Final = 2
# Lists of one connection that are under way in all: lists on disk hold no memory, but files and tasks.
LISTS_WITH_THOSE_ON_DISK: Final = 16
# The commands that are requests, served in lookup mode. Upstream's proxy does not show the last of these counts.
ASKED: Final[dict[int, Declared[Number]]] = {
    CommandType.LOOKUP: upstream("lookup_requests", "Topic lookups requested."),
    CommandType.PARTITIONED_METADATA: upstream("partitions_metadata_requests", "Partition metadata requested."),
    CommandType.GET_TOPICS_OF_NAMESPACE: upstream("get_topics_of_namespace_requests", "Topic lists requested."),
    CommandType.GET_SCHEMA: upstream("get_schema_requests", "Schemas requested."),
    CommandType.GET_OR_CREATE_SCHEMA: upstream("get_or_create_schema_requests", "Schemas to be created."),
}
REQUESTS: Final = tuple(ASKED)
REJECTED: Final[dict[int, Declared[Number]]] = {
    kind: upstream(
        f"rejected_{ASKED[kind].name.removeprefix(PREFIX)}",
        f"{what} refused by the limit on requests in work.",
        better="the limit counts requests until their answers",
    )
    for kind, what in {
        CommandType.LOOKUP: "Topic lookups",
        CommandType.PARTITIONED_METADATA: "Partition metadata requests",
        CommandType.GET_TOPICS_OF_NAMESPACE: "Topic list requests",
    }.items()
}
REFUSED: Final = counter_by("reason", "refused_requests", "Requests refused before a broker was asked, by reason.")


class RequestServices:
    """The services that answer the requests of all clients; `recorder` is None without an event log."""

    def __init__(
        self,
        core: Core,
        lookups: LookupService,
        topic_lists: TopicListService,
        schemas: SchemaService,
        reports: Reports,
    ) -> None:
        self.loop = core.loop
        self.counters = core.counters
        self.loop_budget = core.loop_budget
        self.lookups = lookups
        self.topic_lists = topic_lists
        self.schemas = schemas
        self.refusals = reports.refusals
        self.recorder = reports.recorder
        # Requests of clients that have left.
        self.leaving = LeaveTurns(
            core.loop, core.loop_budget, lambda error: core.counters.internal_error(error, "client that left")
        )


class _Held:
    """The permits of a request until it ends: one of the concurrent lookups, and memory if its frame was large.

    A topic list also has a place among the lists; until it begins it has neither. A list that is `on_disk` holds no
    memory for the answer.
    """

    __slots__ = ("large", "on_disk", "place", "slot")

    def __init__(self, slot: Slot | None, large: Permit | None) -> None:
        self.on_disk = False
        self.slot = slot
        self.place: Permit | None = None
        self.large = large

    def give_back_slot(self) -> None:
        """Release the place among the lookups: the request waits."""
        if self.slot is not None:
            self.slot.release()
            self.slot = None

    def release(self) -> None:
        for held in (self.slot, self.place, self.large):
            if held is not None:
                held.release()


class _WaitingList(NamedTuple):
    command: bytes
    arrived: float
    record: RequestRecord | None
    held: _Held


class ClientRequests:
    """Serves one client's requests until `close`; the client, not its bound methods, is kept for each connection.

    Topic lists and GET_SCHEMA are served in tasks; the small requests wait without (`proxy.requests.forwarding`).
    """

    __slots__ = (
        "_client",
        "_forwarded",
        "_list_tasks",
        "_lists_on_disk",
        "_lists_under_way",
        "_schema_tasks",
        "_services",
        "_waiting_lists",
        "enough_waits",
    )

    def __init__(self, client: Client, services: RequestServices) -> None:
        self._client = client
        self._services = services
        # Most connections ask for nothing.
        self._list_tasks: TaskScope | None = None
        self._schema_tasks: TaskScope | None = None
        # The small requests, with the permits of large frames.
        self._forwarded: dict[ForwardedRequest, Permit | None] | None = None
        # Lists on disk are not among the lists under way.
        self._lists_under_way = self._lists_on_disk = 0
        # Whether the client must not be read because of the lists that wait.
        self.enough_waits = False
        self._waiting_lists: deque[_WaitingList] | None = None

    def serve(self, command: pb.BaseCommand, raw: bytes, large: Permit | None, since: float = 0.0) -> bool:
        """Begin to serve a request that came as `raw`; return whether the request holds `large`, the frame's permit.

        Topic lists beyond LISTS_AT_ONCE wait for their turn. The request has waited in line `since` then, if it has.
        """
        self._services.counters[ASKED[command.type]].value += 1
        if command.type == CommandType.GET_TOPICS_OF_NAMESPACE:
            return self._serve_list(command, raw, large, since)
        lookups = self._services.lookups
        if since and lookups.too_late(since):
            self._refuse_late(command)
            return False
        slot = lookups.try_begin(self._asker, since, len(raw))
        if slot is None:
            self._reject(command)
            return False
        self._client.outstanding += 1
        self._services.loop_budget.charge(TASK_SECONDS)
        if command.type == CommandType.GET_SCHEMA:
            if self._schema_tasks is None:
                self._schema_tasks = TaskScope(self._client.crashed)
            # The task's end releases what is held, not its body: a task cancelled before its first step has none.
            work = self._services.schemas.serve(self._client, command.getSchema, slot)
            self._schema_tasks.start(work, partial(self._ended, _Held(slot, large)))
            return True
        if self._forwarded is None:
            self._forwarded = {}
        self._forwarded[lookups.start(command, RequestParts(self._client, slot, self._forwarded))] = large
        return True

    def _start_for_lists(self, work: Coroutine[Any, Any, None], on_end: Callable[[], None]) -> None:
        if self._list_tasks is None:
            self._list_tasks = TaskScope(self._client.crashed)
        self._list_tasks.start(work, on_end)

    @property
    def _asker(self) -> Asker:
        return self._client.network, id(self._client)

    @property
    def tasks(self) -> int:
        """Count the tasks and small requests that have not ended, also of a client that is gone: they end later."""
        kinds = self._list_tasks, self._schema_tasks, self._forwarded
        return sum(len(under_way) for under_way in kinds if under_way is not None)

    def _reject(self, command: pb.BaseCommand, record: RequestRecord | None = None) -> None:
        services = self._services
        if record is not None:
            record.rejected(command.getTopicsOfNamespace)
        if command.type in REJECTED:
            services.counters[REJECTED[command.type]].value += 1
        services.counters[REFUSED]["too_many"] += 1
        full = services.lookups.full()
        services.refusals.note_over_limit(full, self._client.name, _subject(command))
        request_id = commands.request_id_of(command)
        self._client.output.send(refusal(command.type, request_id, full.code, full.message))

    def _refuse_late(self, command: pb.BaseCommand) -> None:
        """Refuse a request whose client has given up by now: a broker must not be asked for it."""
        services, late = self._services, self._services.lookups.late()
        services.counters[REFUSED]["too_late"] += 1
        services.refusals.note_over_limit(late, self._client.name, _subject(command))
        request_id = commands.request_id_of(command)
        self._client.output.send(refusal(command.type, request_id, late.code, late.message))

    def close(self) -> None:
        """Release what waiting requests hold, and have the tasks cancelled: the client is gone.

        A thousand lookups end a few in each iteration of the loop, topic lists before them. Until then they go on
        for a client that is gone, and whatever they send is dropped.
        """
        leaving = self._services.leaving
        if self._list_tasks is not None:
            leaving.cancel(self._list_tasks.close(), first=True)
        if self._schema_tasks is not None:
            leaving.cancel(self._schema_tasks.close())
        if self._forwarded is not None:
            leaving.cancel(self._forwarded)
        waiting, self._waiting_lists = self._waiting_lists, None
        self._services.lookups.list_places.waiting -= len(waiting or ())
        for entry in waiting or ():
            self._services.counters[ANSWERS]["cancelled"] += 1
            if entry.record is None:
                entry.held.release()
            else:
                # Up to a thousand of them: their questions are decoded a few in each iteration of the loop.
                left = partial(_record_left, entry, entry.record, self._client.cause)
                self._services.loop_budget.defer_cheap(left)

    # --- topic lists ------------------------------------------------------------------------------

    def _serve_list(self, command: pb.BaseCommand, raw: bytes, large: Permit | None, since: float) -> bool:
        client, recorder, record = self._client, self._services.recorder, None
        if recorder is not None:
            record = recorder.request(RequestOrigin(client.principal, client.name, client.client_version))
        arrived, held = since or self._services.loop.time(), _Held(None, large)
        if self._may_start and not self._waiting_lists:
            lookups = self._services.lookups
            held.slot = lookups.try_begin(self._asker, arrived, len(raw))
            if held.slot is None:
                self._reject(command, record)
                return False
            held.place = lookups.list_places.try_begin(role_of(client.principal))
            if held.place is not None:
                self._client.outstanding += 1
                self._start_list(command, arrived, record, held)
                return True
            held.give_back_slot()
        self._client.outstanding += 1
        self._let_wait(_WaitingList(raw, arrived, record, held))
        return True

    def _let_wait(self, waiting: _WaitingList) -> None:
        if self._waiting_lists is None:
            self._waiting_lists = deque()
        self._waiting_lists.append(waiting)
        self._note_waiting(self._waiting_lists, 1)
        if len(self._waiting_lists) == 1 and self._may_start:
            self._await_place(waiting)

    def _note_waiting(self, waiting_lists: deque[_WaitingList], change: int) -> None:
        places = self._services.lookups.list_places
        places.waiting += change
        self.enough_waits = len(waiting_lists) >= FEW_WAITING and places.crowded

    @property
    def _may_start(self) -> bool:
        under_way = self._lists_under_way
        return under_way < LISTS_AT_ONCE and under_way + self._lists_on_disk < LISTS_WITH_THOSE_ON_DISK

    def _start_list(self, command: pb.BaseCommand, arrived: float, record: RequestRecord | None, held: _Held) -> None:
        asked = ListRequest(
            self._client, command.getTopicsOfNamespace, arrived, record, partial(self._list_on_disk, held),
            behind=self._lists_under_way > 0,
        )  # fmt: skip
        self._lists_under_way += 1
        self._services.loop_budget.charge(TASK_SECONDS)
        self._start_for_lists(self._services.topic_lists.serve(asked), partial(self._list_ended, asked, held))

    def _list_on_disk(self, held: _Held) -> None:
        """Called when a list has moved to disk: the next list may take memory."""
        held.on_disk = True
        self._lists_under_way -= 1
        self._lists_on_disk += 1
        self._start_another()

    def _list_ended(self, asked: ListRequest, held: _Held) -> None:
        if not asked.begun:
            # The client left in the iteration of the loop in which its request came.
            self._services.topic_lists.cancelled(asked)
        if held.on_disk:
            self._lists_on_disk -= 1
        else:
            self._lists_under_way -= 1
        self._start_another()
        self._ended(held)

    def _start_another(self) -> None:
        if self._waiting_lists:
            self._services.loop_budget.defer(self._start_waiting_list, self._client.network)

    def _start_waiting_list(self) -> None:
        if self._waiting_lists and self._may_start:
            place = self._services.lookups.list_places.try_begin(role_of(self._client.principal))
            if place is None:
                self._await_place(self._waiting_lists[0])
            else:
                self._start_first(self._waiting_lists, place)

    def _start_first(self, waiting_lists: deque[_WaitingList], place: Permit | None) -> None:
        """Start the list that waits longest; without a place it is too late, and the service refuses the list."""
        raw, arrived, record, held = waiting_lists.popleft()
        self._note_waiting(waiting_lists, -1)
        command = commands.decode_command(raw)
        held.place = place
        if place is not None:
            held.slot = self._services.lookups.try_begin(self._asker, arrived, len(raw))
            if held.slot is None:
                self._reject(command, record)
                self._start_another()
                self._ended(held)
                return
        self._start_list(command, arrived, record, held)

    def _await_place(self, waiting: _WaitingList) -> None:
        self._lists_under_way += 1
        self._start_for_lists(self._begin_in_turn(waiting.arrived), self._place_awaited)

    async def _begin_in_turn(self, arrived: float) -> None:
        """Wait for a place among the lists, and start the list that is first in this connection's line by then."""
        services = self._services
        longest = services.topic_lists.queues.limits.request_timeout_seconds
        while True:
            seconds = arrived + longest - services.loop.time()
            place = await services.lookups.list_places.begin(role_of(self._client.principal), seconds)
            waiting_lists = self._waiting_lists
            if place is not None or not waiting_lists or waiting_lists[0].arrived <= arrived:
                break
            # The list whose clock this was has begun in another list's turn.
            arrived = waiting_lists[0].arrived
        if waiting_lists:
            self._start_first(waiting_lists, place)
        elif place is not None:
            place.release()

    def _place_awaited(self) -> None:
        self._lists_under_way -= 1
        self._start_another()

    def _ended(self, held: _Held) -> None:
        held.release()
        self._client.outstanding -= 1
        self._client.fewer_requests()


def _record_left(waited: _WaitingList, record: RequestRecord, gone: DisconnectCause | None) -> None:
    try:
        record.cancelled(commands.decode_command(waited.command).getTopicsOfNamespace, gone)
    finally:
        # A question that cannot be decoded must not keep its memory.
        waited.held.release()


def _subject(command: pb.BaseCommand) -> str:
    """Return the namespace or topic of a request."""
    if command.type == CommandType.LOOKUP:
        return command.lookupTopic.topic
    if command.type == CommandType.PARTITIONED_METADATA:
        return command.partitionMetadata.topic
    if command.type == CommandType.GET_TOPICS_OF_NAMESPACE:
        return command.getTopicsOfNamespace.namespace
    return (command.getSchema if command.type == CommandType.GET_SCHEMA else command.getOrCreateSchema).topic


def refusal(kind: int, request_id: int, code: int, message: str) -> bytes:
    """Build the answer to a request that is refused, in the form that its client expects."""
    if kind == CommandType.LOOKUP:
        return commands.lookup_failed(request_id, code, message)
    if kind == CommandType.PARTITIONED_METADATA:
        return commands.partition_metadata_failed(request_id, code, message)
    return commands.error(request_id, code, message)
