"""Own the books of a proxy: everything that must be zero when no client is there."""

from proxy.app.memory.nodes import NODES
from proxy.app.proxy import Proxy
from tests.support.proxies.counted import counted_by


def books_of(proxy: Proxy) -> dict[str, int]:
    """Return each account by its name; each is zero when nothing is left of any client."""
    requests = proxy.services.requests
    at_nodes = dict.fromkeys((node.name for node in NODES), 0)
    for node, semaphore in proxy.nodes():
        at_nodes[node.name] += semaphore.held + semaphore.queue_size + semaphore.growers_waiting
    places, commands = requests.lookups.list_places, requests.lookups.request_bytes
    return {
        **at_nodes,
        "sessions": len(proxy.sessions),
        "large frames arriving": len(proxy.services.uploads),
        "places of lists": places.held + places.queue_size,
        "lists that wait": places.waiting,
        "memory of commands": 0 if commands is None else len(commands) + commands.record().used_bytes,
        "lists arriving": len(requests.topic_lists.arriving),
        "schemas arriving": len(requests.schemas.arriving),
        "outstanding questions": proxy.broker_side.pool.outstanding,
        "paused broker connections": proxy.broker_side.pool.states()["paused"],
        "waiting for a broker connection": proxy.broker_side.pool.waiting,
        "watched sockets": len(proxy.sockets.hangup),
        "groups of lists": len(requests.topic_lists.groups),
        "bodies being sent": len(proxy.sockets.pump),
        "lists on disk": 0 if proxy.memory.spill is None else proxy.memory.spill.busy,
        "dials to made-up hosts": sum(counted_by(proxy.counters, "target_dials").values()),
        "put off": len(proxy.core.loop_budget),
    }
