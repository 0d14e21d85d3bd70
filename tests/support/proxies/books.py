"""Own the books of a proxy: everything that must be zero when no client is there."""

from proxy.app.proxy import Proxy
from tests.support.proxies.counted import counted_by


def books_of(proxy: Proxy) -> dict[str, int]:
    """Return each account by its name; each is zero when nothing is left of any client."""
    heap, direct = proxy.memory.limiter.heap, proxy.memory.limiter.direct
    frames, handshakes = proxy.memory.frames, proxy.services.handshakes
    unproven, requests = proxy.memory.unproven.share, proxy.services.requests
    queues = requests.topic_lists.queues.all().values()
    places, commands = requests.lookups.list_places, requests.lookups.request_bytes
    return {
        "sessions": len(proxy.sessions),
        "heap held": heap.held,
        "heap waiting": heap.queue_size + heap.growers_waiting,
        "direct held": direct.held,
        "direct waiting": direct.queue_size + direct.growers_waiting,
        "share of large frames": frames.held + frames.queue_size + frames.growers_waiting,
        "handshake memory held": handshakes.held,
        "handshake memory waiting": handshakes.queue_size + handshakes.growers_waiting,
        "large frames arriving": len(proxy.services.uploads),
        "lookup permits": requests.lookups.concurrency.held,
        "places of lists": places.held + places.queue_size,
        "lists that wait": places.waiting,
        "memory of commands": 0 if commands is None else len(commands) + commands.record().used_bytes,
        "questions to brokers": sum(queue.in_flight.held + queue.in_flight.queue_size for queue in queues),
        "estimates on brokers": sum(queue.reservations.held + queue.reservations.queue_size for queue in queues),
        "room at brokers": sum(queue.answers.held + queue.answers.queue_size for queue in queues),
        "lists arriving": len(requests.topic_lists.arriving),
        "schemas arriving": len(requests.schemas.arriving),
        "outstanding questions": proxy.broker_side.pool.outstanding,
        "paused broker connections": proxy.broker_side.pool.states()["paused"],
        "waiting for a broker connection": proxy.broker_side.pool.waiting,
        "watched sockets": len(proxy.sockets.hangup),
        "groups of lists": len(requests.topic_lists.groups),
        "bodies being sent": len(proxy.sockets.pump),
        "lists on disk": 0 if proxy.spill is None else proxy.spill.busy,
        "shares of unproven readers": unproven.held + unproven.queue_size,
        "questions of unproven readers": sum(queue.unproven.held + queue.unproven.queue_size for queue in queues),
        "dials to made-up hosts": sum(counted_by(proxy.counters, "target_dials").values()),
        "put off": len(proxy.sockets.loop_budget),
    }
