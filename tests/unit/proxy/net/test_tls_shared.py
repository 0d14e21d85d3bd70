"""What TLS connections share: windows of one buffer, and the way past the wrapper around OpenSSL."""

import asyncio
import inspect
import ssl
from time import perf_counter
from typing import Any

import pytest

from proxy.core.loop_budget import LoopBudget
from proxy.net.tls.shared import RECORD_BYTES, TlsShared, direct_calls
from proxy.net.transport import LARGE_READ_BYTES, SMALL_READ_BYTES
from tests.support.auth.tls import HOST, client_context, server_context


def shaken() -> tuple[ssl.SSLObject, ssl.SSLObject]:
    """Give both ends of a connection in memory, hands shaken."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = server_context().wrap_bio(to_server, to_client, server_side=True)
    client = client_context().wrap_bio(to_client, to_server, server_hostname=HOST)
    for _ in range(3):
        for side in (client, server):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
    return server, client


class Wrapped:
    """An SSLObject of an interpreter that keeps nothing below it."""

    def __init__(self, sealer: ssl.SSLObject) -> None:
        self.read = sealer.read
        self.write = sealer.write


class TestDirectCalls:
    @pytest.mark.parametrize("wrapped", [False, True])
    def test_records_go_through_with_and_without_an_object_below(self, wrapped: bool) -> None:
        server, client = shaken()
        sides: list[Any] = [Wrapped(server), Wrapped(client)] if wrapped else [server, client]
        (unseal, _), (_, seal) = (direct_calls(side) for side in sides)
        place = memoryview(bytearray(8))
        for piece in (b"abcdef", bytearray(b"abcdef"), memoryview(b"abcdef")):
            assert seal(piece) == 6
            assert unseal(100, place[2:]) == 6
            assert bytes(place) == b"\0\0abcdef"

    def test_this_interpreter_has_an_object_of_c_below(self) -> None:
        server, _ = shaken()
        for call in direct_calls(server):
            assert inspect.isbuiltin(call), "each record is a tenth of a microsecond dearer"


class TestWindows:
    def test_what_is_read_fits_into_its_place_decrypted(self) -> None:
        loop = asyncio.new_event_loop()
        shared = TlsShared(LoopBudget(loop, perf_counter), 4 * LARGE_READ_BYTES)
        loop.close()
        for room in (LARGE_READ_BYTES, 4 * LARGE_READ_BYTES, LARGE_READ_BYTES, LARGE_READ_BYTES):
            assert len(shared.window(room)) == room - RECORD_BYTES
        for room in (1, SMALL_READ_BYTES, RECORD_BYTES + SMALL_READ_BYTES):
            assert len(shared.window(room)) == SMALL_READ_BYTES
