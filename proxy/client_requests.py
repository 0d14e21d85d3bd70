"""The requests of one client: who serves which, how many may be under way, and what each of them holds.

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
from proxy.brokers.discovery import BrokerChoice
from proxy.counters import Counters
from proxy.errors import RequestFailed
from proxy.lookups import LookupService
from proxy.refusals import RefusalLog
from proxy.request_checks import check_properties
from proxy.requester import Requester
from proxy.schemas import SchemaService
from proxy.slots import Slot
from proxy.tasks import TaskScope
from proxy.topic_lists import TopicListService
from proxy.turns import Turns

# Topic lists of one connection that may hold memory at once: one being written and one ready to follow. More would fill
# the heap limit with answers that wait for their own client, while clients that could read get none.
LISTS_AT_ONCE: Final = 2


@dataclass(frozen=True, slots=True)
class RequestServices:
    """Who serves the requests of all clients."""

    loop: asyncio.AbstractEventLoop
    counters: Counters
    brokers: BrokerChoice
    lookups: LookupService
    topic_lists: TopicListService
    turns: Turns
    schemas: SchemaService
    refusals: RefusalLog


class _Held(NamedTuple):
    """What a request holds until it ends: one of the concurrent lookups, and memory if its frame was large."""

    slot: Slot
    large: Permit | None

    def release(self) -> None:
        self.slot.release()
        if self.large is not None:
            self.large.release()


class _WaitingList(NamedTuple):
    command: bytes
    arrived: float
    held: _Held


class ClientRequests:
    """Serve one client's requests in tasks of its scope; `on_fewer` is called when one has ended."""

    __slots__ = ("_client", "_lists_under_way", "_on_fewer", "_scope", "_services", "_waiting_lists", "outstanding")

    def __init__(
        self, client: Requester, services: RequestServices, scope: TaskScope, on_fewer: Callable[[], None]
    ) -> None:
        self._client = client
        self._services = services
        self._scope = scope
        self._on_fewer = on_fewer
        self._lists_under_way = 0
        self._waiting_lists: deque[_WaitingList] | None = None
        self.outstanding = 0

    def serve(self, command: pb.BaseCommand, raw: bytes, large: Permit | None) -> bool:
        """Begin to serve a request that came as `raw`; tells whether `large`, its frame's permit, is now held by it."""
        asked, rejected = _COUNTED[command.type]
        counters = self._services.counters
        _count(counters, asked)
        try:
            check_properties(command)
        except RequestFailed as failure:
            counters.request_refused("properties")
            self._client.output.send(_refusal(command, failure.code, failure.message))
            return False
        slot = self._services.lookups.try_begin()
        if slot is None:
            _count(counters, rejected)
            counters.request_refused("too_many")
            full = self._services.lookups.full()
            self._services.refusals.note_over_limit(full, self._client.name, _subject(command))
            self._client.output.send(_refusal(command, full.code, full.message))
            return False
        self.outstanding += 1
        held = _Held(slot, large)
        if command.type == CommandType.GET_TOPICS_OF_NAMESPACE:
            self._list(command.getTopicsOfNamespace, raw, held)
        else:
            # What is held is released by the task's end, not by its body: a task cancelled before its first step has
            # none.
            self._scope.start(self._work(command, slot), partial(self._ended, held))
        return True

    def close(self) -> None:
        """Give back what waiting requests hold: the client is gone (its tasks are cancelled by their scope)."""
        waiting, self._waiting_lists = self._waiting_lists, None
        for entry in waiting or ():
            self._services.counters.list_ended("cancelled")
            entry.held.release()

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

    def _list(self, request: pb.CommandGetTopicsOfNamespace, raw: bytes, held: _Held) -> None:
        now = self._services.loop.time()
        if self._lists_under_way < LISTS_AT_ONCE and not self._waiting_lists:
            self._start_list(request, now, held)
            return
        if self._waiting_lists is None:
            self._waiting_lists = deque()
        self._waiting_lists.append(_WaitingList(raw, now, held))

    def _start_list(self, request: pb.CommandGetTopicsOfNamespace, arrived: float, held: _Held) -> None:
        services = self._services
        self._lists_under_way += 1
        work = services.topic_lists.serve(self._client, services.brokers.home(request.namespace), request, arrived)
        self._scope.start(work, partial(self._list_ended, held))

    def _list_ended(self, held: _Held) -> None:
        self._lists_under_way -= 1
        if self._waiting_lists:
            self._services.turns.later(self._start_waiting_list)
        self._ended(held)

    def _start_waiting_list(self) -> None:
        if self._waiting_lists and self._lists_under_way < LISTS_AT_ONCE:
            waiting = self._waiting_lists.popleft()
            request = commands.decode_command(waiting.command).getTopicsOfNamespace
            self._start_list(request, waiting.arrived, waiting.held)

    def _ended(self, held: _Held) -> None:
        held.release()
        self.outstanding -= 1
        self._on_fewer()


# The counters of each request: asked for, and rejected because too many are under way (upstream has no more).
_COUNTED: Final[dict[int, tuple[str | None, str | None]]] = {
    CommandType.LOOKUP: ("lookup_requests", "rejected_lookup_requests"),
    CommandType.PARTITIONED_METADATA: ("partitions_metadata_requests", "rejected_partitions_metadata_requests"),
    CommandType.GET_TOPICS_OF_NAMESPACE: (
        "get_topics_of_namespace_requests",
        "rejected_get_topics_of_namespace_requests",
    ),
    CommandType.GET_SCHEMA: ("get_schema_requests", None),
    CommandType.GET_OR_CREATE_SCHEMA: (None, None),
}

REQUESTS: Final = frozenset(_COUNTED)


def _count(counters: Counters, name: str | None) -> None:
    if name is not None:
        setattr(counters, name, getattr(counters, name) + 1)


def _subject(command: pb.BaseCommand) -> str:
    """Say which namespace or topic a request is about."""
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
