"""The requests of one client: which service answers each, how many may be under way, and what each of them holds.

A request is outstanding from its arrival until its answer is handed to the output. Topic lists beyond the first few
of a connection wait here as they came, without a task: a client that pipelines a thousand costs little more than
their bytes.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple

from limiter.permit import Permit
from protocol import commands
from protocol.command_type import CommandType
from protocol.pb import PulsarApi_pb2 as pb
from proxy.core.errors import RequestFailed
from proxy.core.loop_budget import LoopBudget
from proxy.core.tasks import TaskScope
from proxy.requests.client import ClientView
from proxy.requests.counters import RequestCounters
from proxy.requests.lookups import LookupService, Slot
from proxy.requests.schemas import SchemaService
from proxy.requests.topic_lists.service import ListRequest, TopicListService
from proxy.requests.validation import check_properties
from proxy.telemetry.events.recorder import NO_RECORD, NoRecord, Recorder
from proxy.telemetry.refusals import RefusalLog

# Topic lists of one connection that may hold memory at once: a list being written, and a list ready to follow. With
# more, answers that wait for their own client would fill the heap limit, while clients that could read get none.
LISTS_AT_ONCE: Final = 2


@dataclass(frozen=True, slots=True)
class RequestServices:
    """The services that answer the requests of all clients."""

    loop: asyncio.AbstractEventLoop
    counters: RequestCounters
    lookups: LookupService
    topic_lists: TopicListService
    loop_budget: LoopBudget
    schemas: SchemaService
    refusals: RefusalLog
    recorder: Recorder | None = None


class _Held:
    """The permits of a request until it ends: one of the concurrent lookups, and memory if its frame was large."""

    __slots__ = ("large", "slot")

    def __init__(self, slot: Slot, large: Permit | None) -> None:
        self.slot = slot
        self.large = large

    def release(self) -> None:
        self.slot.release()
        if self.large is not None:
            self.large.release()


class _WaitingList(NamedTuple):
    command: bytes
    arrived: float
    record: NoRecord
    held: _Held


class ClientRequests:
    """Serves one client's requests in tasks of its scope; `on_fewer` is called when a request has ended."""

    __slots__ = ("_client", "_lists_under_way", "_on_fewer", "_scope", "_services", "_waiting_lists", "outstanding")

    def __init__(
        self, client: ClientView, services: RequestServices, scope: TaskScope, on_fewer: Callable[[], None]
    ) -> None:
        self._client = client
        self._services = services
        self._scope = scope
        self._on_fewer = on_fewer
        self._lists_under_way = 0
        self._waiting_lists: deque[_WaitingList] | None = None
        self.outstanding = 0

    def serve(self, command: pb.BaseCommand, raw: bytes, large: Permit | None) -> bool:
        """Begin to serve a request that came as `raw`; return whether the request holds `large`, the frame's permit.

        Topic lists beyond LISTS_AT_ONCE wait for their turn.
        """
        counters = self._services.counters
        counters.asked[command.type] += 1
        is_list = command.type == CommandType.GET_TOPICS_OF_NAMESPACE
        record, recorder = NO_RECORD, self._services.recorder
        if is_list and recorder is not None:
            record = recorder.request(self._client)
            record.asks(command.getTopicsOfNamespace)
        try:
            check_properties(command)
        except RequestFailed as failure:
            counters.request_refused("properties")
            self._client.output.send(_refusal(command, failure.code, failure.message))
            if is_list:
                counters.list_ended("failed")
            record.failed(failure)
            return False
        slot = self._services.lookups.try_begin()
        if slot is None:
            counters.rejected[command.type] += 1
            self._reject(command)
            record.rejected()
            return False
        self.outstanding += 1
        held = _Held(slot, large)
        if not is_list:
            # The task's end releases what is held, not its body: a task cancelled before its first step has none.
            self._scope.start(self._work(command, slot), partial(self._ended, held))
        elif self._lists_under_way < LISTS_AT_ONCE and not self._waiting_lists:
            now = self._services.loop.time()
            self._start_list(ListRequest(self._client, command.getTopicsOfNamespace, now, record), held)
        else:
            if self._waiting_lists is None:
                self._waiting_lists = deque()
            # The decoded form would be kept for as long as the request waits.
            record.asks(None)
            self._waiting_lists.append(_WaitingList(raw, self._services.loop.time(), record, held))
        return True

    def _reject(self, command: pb.BaseCommand) -> None:
        services = self._services
        services.counters.request_refused("too_many")
        full = services.lookups.full()
        services.refusals.note_over_limit(full, self._client.name, _subject(command))
        self._client.output.send(_refusal(command, full.code, full.message))

    def close(self) -> None:
        """Release what waiting requests hold: the client is gone (its tasks are cancelled by their scope)."""
        waiting, self._waiting_lists = self._waiting_lists, None
        for entry in waiting or ():
            entry.held.release()
            self._services.counters.list_ended("cancelled")
            if entry.record is not NO_RECORD:
                # Up to a thousand of them: their questions are decoded a few in each iteration of the loop.
                self._services.loop_budget.defer_cheap(partial(_record_waited, entry.record, entry.command))

    def _work(self, command: pb.BaseCommand, slot: Slot) -> Coroutine[Any, Any, None]:
        services, client = self._services, self._client
        lookups = services.lookups
        if command.type == CommandType.LOOKUP:
            return lookups.lookup(client, command.lookupTopic, slot)
        if command.type == CommandType.PARTITIONED_METADATA:
            return lookups.partition_metadata(client, command.partitionMetadata, slot)
        if command.type == CommandType.GET_OR_CREATE_SCHEMA:
            return lookups.get_or_create_schema(client, command.getOrCreateSchema, slot)
        assert command.type == CommandType.GET_SCHEMA
        return services.schemas.serve(client, command.getSchema, slot)

    def _start_list(self, asked: ListRequest, held: _Held) -> None:
        self._lists_under_way += 1
        self._scope.start(self._services.topic_lists.serve(asked), partial(self._list_ended, asked, held))

    def _list_ended(self, asked: ListRequest, held: _Held) -> None:
        if not asked.begun:
            # The client left in the iteration of the loop in which its request came.
            self._services.counters.list_ended("cancelled")
            asked.record.cancelled()
        self._lists_under_way -= 1
        if self._waiting_lists:
            self._services.loop_budget.defer(self._start_waiting_list)
        self._ended(held)

    def _start_waiting_list(self) -> None:
        if self._waiting_lists and self._lists_under_way < LISTS_AT_ONCE:
            waiting = self._waiting_lists.popleft()
            request = commands.decode_command(waiting.command).getTopicsOfNamespace
            waiting.record.asks(request)
            self._start_list(ListRequest(self._client, request, waiting.arrived, waiting.record), waiting.held)

    def _ended(self, held: _Held) -> None:
        held.release()
        self.outstanding -= 1
        self._on_fewer()


def _record_waited(record: NoRecord, raw: bytes) -> None:
    record.asks(commands.decode_command(raw).getTopicsOfNamespace)
    record.cancelled()


def _subject(command: pb.BaseCommand) -> str:
    """Return the namespace or topic of a request."""
    if command.type == CommandType.LOOKUP:
        return command.lookupTopic.topic
    if command.type == CommandType.PARTITIONED_METADATA:
        return command.partitionMetadata.topic
    if command.type == CommandType.GET_TOPICS_OF_NAMESPACE:
        return command.getTopicsOfNamespace.namespace
    return (command.getSchema if command.type == CommandType.GET_SCHEMA else command.getOrCreateSchema).topic


def _refusal(command: pb.BaseCommand, code: int, message: str) -> bytes:
    request_id = commands.request_id_of(command)
    if command.type == CommandType.LOOKUP:
        return commands.lookup_failed(request_id, code, message)
    if command.type == CommandType.PARTITIONED_METADATA:
        return commands.partition_metadata_failed(request_id, code, message)
    return commands.error(request_id, code, message)
