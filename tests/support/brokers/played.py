"""Play the peer of an endpoint in memory."""

from proxy.net.transport import Endpoint


def feed(endpoint: Endpoint, data: bytes) -> None:
    """Let an endpoint read `data`, as much at a time as it has room for, until it ends."""
    while data and endpoint.cause is None:
        place = endpoint.get_buffer(-1)
        count = min(len(place), len(data))
        place[:count] = data[:count]
        endpoint.buffer_updated(count)
        data = data[count:]


def crash(error: BaseException) -> None:
    """Fail the test for an error that a part reports instead of raising it."""
    raise error
