"""The metrics of the memory of relays."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from proxy.core.counters import PREFIX, Derived
from proxy.core.instrument import Kind, Unit

if TYPE_CHECKING:
    from limiter.soft_pool import PoolRecord
    from proxy.relay.engines import RelayEngines
    from proxy.relay.socket_bound import SocketBound


def _of_bound(
    name: str, kind: Kind, text: str, read: "Callable[[SocketBound], float]", unit: Unit = ""
) -> "Derived[RelayEngines]":
    """Declare a metric of the bound for relayed sockets; there is no sample without a bound."""
    return Derived(
        f"{PREFIX}relay_sockets_{name}", kind, text,
        lambda relays: None if relays.bound is None else read(relays.bound), unit=unit,
    )  # fmt: skip


def _of_pool(
    name: str, kind: Kind, text: str, read: "Callable[[PoolRecord], float]", unit: Unit = ""
) -> "Derived[RelayEngines]":
    """Declare a metric of the relay pool; there is no sample without a pool."""
    return Derived(
        f"{PREFIX}relay_pool_{name}", kind, text,
        lambda relays: None if (pool := relays.pool) is None else read(pool), unit=unit,
    )  # fmt: skip


RELAYS: "Final[tuple[Derived[RelayEngines], ...]]" = (
    Derived(f"{PREFIX}relay_socket_bytes", "gauge", "Kernel memory of relayed sockets, by the side that they lead to.",
            lambda relays: {"broker": relays.weighed.towards_brokers, "client": relays.weighed.towards_clients},
            labels=("side",), unit="bytes"),
    _of_bound("limit_bytes", "gauge",
              "Kernel memory that all relayed sockets may hold together (relaySocketMemoryMB).",
              lambda bound: bound.limit_bytes, "bytes"),
    _of_bound("tight", "gauge",
              "1: half of that is in use, so receive windows of relays that stand still are narrow; 0: less is.",
              lambda bound: float(bound.tight)),
    _of_bound("ended", "counter",
              "Relays that were ended because the kernel held too much for all of them (cause memory_limit).",
              lambda bound: bound.ended),
    _of_pool("limit_bytes", "gauge", "Memory that relays may hold together (relayMemoryPoolMB).",
             lambda pool: pool.limit_bytes, "bytes"),
    _of_pool("used_bytes", "gauge", "Bytes that relays have read and their receivers have not taken.",
             lambda pool: pool.used_bytes, "bytes"),
    _of_pool("muted_connections", "gauge",
             "Directions of relays that are not read: the pool is used up, and their receivers take nothing.",
             lambda pool: pool.muted),
    _of_pool("muted_seconds", "counter", "Time that directions have waited for memory, all added up.",
             lambda pool: pool.muted_millis / 1000, "seconds"),
    _of_pool("overshoots", "counter",
             "Reads that took the pool above its limit, at most one of each thread at a time.",
             lambda pool: pool.overshoots),
    _of_pool("depleted_seconds", "counter", "Time in which nothing of the pool was free.",
             lambda pool: pool.depleted_millis / 1000, "seconds"),
)  # fmt: skip
