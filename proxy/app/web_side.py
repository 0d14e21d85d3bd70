"""Build the web ports and their pages, from the rooms that they use.

`proxy.app.proxy` imports this module in a thread when the ports for clients are open, and only if there is a web port:
the modules for HTTP take as long to load as all others together.
"""

from collections.abc import Callable, Iterable, Mapping

from limiter.semaphore import AsyncSemaphore
from protocol.command_type import CommandType
from proxy.app.identities import Identities
from proxy.app.metrics.prometheus import ProxyMetrics
from proxy.app.ports import ClientPorts
from proxy.brokers.side import BrokerSide
from proxy.brokers.sockets import Sockets
from proxy.clients.requests import ASKED
from proxy.config.core import Core
from proxy.net.listen.listening import port_of
from proxy.relay.traffic import RELAY_BYTES
from proxy.requests.topic_lists.memory import ListMemory
from proxy.requests.topic_lists.service import ANSWERS
from proxy.telemetry.events.reports import Reports
from proxy.web.forward.broker_ports import BrokerPorts
from proxy.web.forward.reverse_proxy import ReverseProxy
from proxy.web.forward.settings import WebTargets
from proxy.web.http.clients import Guard
from proxy.web.pages import PageTable, document_page, own_pages
from proxy.web.readiness import Readiness
from proxy.web.runtime_settings import RuntimeSettings
from proxy.web.ui.minutes import Minutes
from proxy.web.ui.page import ui_pages


def reverse_proxy(
    core: Core, memory: ListMemory, side: BrokerSide, reports: Reports, lookups: BrokerPorts
) -> ReverseProxy | None:
    """Return what passes requests on, None without a port or a server for them."""
    config = core.config
    if config.web_service_port is None and config.web_service_port_tls is None:
        return None
    return ReverseProxy(core, memory, side, reports, lookups) if WebTargets.of(config).any else None


def lookup_ports(core: Core, sockets: Sockets, side: BrokerSide, ports: ClientPorts) -> BrokerPorts:
    """Return the ports that lookups over HTTP lead to; `ports` opens them, at once those of the process before."""
    found = BrokerPorts(core, ports.open_for_broker, side.known)
    for each in sockets.listening.broker_ports:
        if each.purpose is not None:
            found.reopen(port_of(each.listening), each.purpose.target, tls=each.purpose.tls)
    return found


def guard_of(identities: Identities) -> Guard | None:
    """Return the guard of the pages, None if clients need not authenticate."""
    clients, authenticator = identities.clients, identities.authenticator
    if clients is None:
        return None
    return Guard(clients, certificates=authenticator is None or "tls" in authenticator.methods)


def pages_of(
    core: Core,
    identities: Identities,
    readiness: Readiness,
    settings: RuntimeSettings,
    seen: Callable[[], Mapping[str, object]],
) -> PageTable:
    """Return the own pages; `seen` returns what the page for people shows."""
    config = core.config
    metrics = ProxyMetrics(config.cluster_name, core.counters)
    pages = own_pages(config.status_file_path, metrics.pieces, readiness, guard_of(identities))
    for document in settings.documents():
        pages.add(document_page(document, config, pages.renderings))
    for page in ui_pages(core, seen, settings.config):
        pages.add(page)
    return pages


def minutes_of(core: Core, memory: ListMemory, lines: Callable[[], Iterable[AsyncSemaphore]]) -> Minutes:
    """Return the samples of the last minutes, from numbers that are kept anyway."""
    counters = core.counters

    def counts() -> Mapping[str, float]:
        outcomes, asked = counters[ANSWERS], {kind: counters[asked].value for kind, asked in ASKED.items()}
        answered = outcomes["answered"]
        return {
            "lists": answered,
            "refused": sum(outcomes.values()) - answered,
            "requests": sum(asked.values()) - asked[CommandType.GET_TOPICS_OF_NAMESPACE],
            "relayed_to_client": counters[RELAY_BYTES]["to_client"],
            "relayed_to_broker": counters[RELAY_BYTES]["to_broker"],
        }

    def gauges() -> Mapping[str, float]:
        return {
            "waiting": sum(line.queue_size + line.growers_waiting for line in lines()),
            "heap_wait_ms": memory.heap_waits.wait_millis.quantiles(0.99)[0],
            "direct_wait_ms": memory.direct_waits.wait_millis.quantiles(0.99)[0],
        }

    return Minutes(counts, gauges)
