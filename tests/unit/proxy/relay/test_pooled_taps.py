"""A tap beside a relay pool: the tap sees the bytes that were read, whatever the pool says meanwhile."""

from types import SimpleNamespace
from typing import Any

import pytest

from proxy.core.errors import DisconnectCause
from proxy.net.transport import SharedReadBuffer
from proxy.relay.pooled.relays import PooledTappedEndpoint
from proxy.relay.pooled.turns import TinyBuffer


class Seen(BaseException):
    """Ends the read behind the tap."""


@pytest.mark.parametrize("scarce_first", [False, True])
def test_a_tap_sees_the_buffer_of_the_read_though_memory_is_scarce_or_free_by_now(scarce_first: bool) -> None:
    scarce = scarce_first
    turns: Any = SimpleNamespace(
        books=SimpleNamespace(pool_scarce=lambda: scarce), tiny=TinyBuffer(), room=lambda *args, **keys: 0
    )
    relay: Any = SimpleNamespace(loop_budget=SimpleNamespace(now=lambda: 0.0))
    shared, nobody = SharedReadBuffer(65_536), SimpleNamespace()
    endpoint = PooledTappedEndpoint(nobody, shared, nobody, relay, DisconnectCause.CLIENT_CLOSED)  # type: ignore[arg-type]
    endpoint.turns, endpoint._own_shared = turns, shared
    seen: list[bytes] = []

    def tap(data: memoryview | bytes, count: int) -> int:
        seen.append(bytes(data[:count]))
        raise Seen

    endpoint.tap = tap
    endpoint.get_buffer(-1)[:1] = b"x"
    scarce = not scarce
    with pytest.raises(Seen):
        endpoint.buffer_updated(1)
    assert seen == [b"x"]
