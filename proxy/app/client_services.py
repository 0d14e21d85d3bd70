"""Make what serves the requests of clients: lookups, topic lists, schemas, and the recorder of events about lists."""

from typing import TYPE_CHECKING

from eventlog.sink import EventSink
from limiter.semaphore import AsyncSemaphore
from proxy.brokers.side import BrokerSide
from proxy.clients.requests import RequestServices
from proxy.config.core import Core
from proxy.net.pump import Pump
from proxy.requests.lookups import LookupService
from proxy.requests.schemas import SchemaService
from proxy.requests.topic_lists.memory import ListMemory
from proxy.requests.topic_lists.service import TopicListService
from proxy.telemetry.events.identities import EventIdentities, key_of
from proxy.telemetry.events.recorder import Recorder, RecorderSettings
from proxy.telemetry.events.reports import Reports

if TYPE_CHECKING:
    from proxy.requests.request_bytes import RequestBytes


def make_recorder(core: Core, memory: ListMemory, sink: EventSink | None) -> Recorder | None:
    """Return the recorder of topic lists, or None without a `sink` for its events."""
    if sink is None:
        return None
    config = core.config
    return Recorder(
        sink,
        EventIdentities(key_of(config.event_log_salt), plain=config.event_log_identities == "plain"),
        memory.limiter,
        lambda: memory.queues.heap_queue_size,
        RecorderSettings.of(config),
        lambda error: core.counters.internal_error(error, "event log"),
        later=core.loop.call_later,
    )


def request_services(core: Core, memory: ListMemory, pump: Pump, side: BrokerSide, reports: Reports) -> RequestServices:
    """Return what serves the requests of clients in lookup mode."""
    places = AsyncSemaphore(
        "lookups", core.config.max_concurrent_lookup_requests, max_queue=1, timeout_seconds=0, clock=core.loop
    )
    keys, shares = memory.fairness_keys, memory.unproven.shares
    return RequestServices(
        core,
        LookupService(core, side, places, _request_bytes(core)),
        TopicListService(core, memory, side, pump, reports),
        SchemaService(core, side, memory.limiter, memory.slabs, keys, shares, reports.refusals),
        reports,
    )


def _request_bytes(core: Core) -> "RequestBytes | None":
    """Return the memory for commands, None without a limit."""
    limit = core.config.command_bytes_limit
    if not limit:
        return None
    # Only installations with a limit need the module.
    from proxy.requests.request_bytes import COMMANDS, RequestBytes

    found = RequestBytes(core.loop, limit, core.loop_budget)
    core.counters.derive(COMMANDS, found.record)
    return found
