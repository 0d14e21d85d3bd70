"""A TLS connection: a protocol towards the plain transport below, a transport towards the endpoint above.

Rule: the session (`native/src/tls.rs`) keeps what the endpoint has no room for, and nothing else: ciphertext is read
into one buffer of the loop, plaintext goes straight into the endpoint's buffer, and what is written is sealed at once.
Bytes that a write did not push into the kernel are in the plain transport and nowhere else, so "drained" means the same
as without TLS (docs/adr/0078). The handshake is in `handshake.py`.

A peer can keep a session busy without sending data: a key update of TLS 1.3 is 27 bytes and asks for no answer. The
session holds ciphertext against the data that it brought; here a busy connection is read in its turn (docs/adr/0024).
"""

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, cast

from proxy.core.errors import DisconnectCause
from proxy.core.tasks import do_nothing
from proxy.net.tls.failures import TlsFailed, failed
from proxy.net.tls.handshake import CLIENT_HANDSHAKE_BYTES, Handshake
from proxy.net.tls.session import FAILED, MORE, OWN, PEER_CLOSED, new_session
from proxy.net.tls.shared import BufferedEndpoint, TlsShared
from proxy.net.transport import SMALL_READ_BYTES

if TYPE_CHECKING:
    from proxy.core.native import TlsConfig, TlsSession

# Smaller reads are opened at once: 19 key updates at most.
COSTLY_READ_BYTES: Final = 512
# A read with little data that takes longer was full of tiny records; the next reads, so many, are small then.
SLOW_SECONDS: Final = 0.0002
SLOW_READS: Final = 16
# A small read that is opened in the budget's time.
READ_SECONDS: Final = 0.00005
_NOTHING: Final = b""


class TlsPhase(Enum):
    """The part of its life that a TLS connection is in."""

    HANDSHAKE = 1
    OPEN = 2
    CLOSING = 3


# Every read and write compares with this: a global is found faster than a member of an enumeration.
OPEN: Final = TlsPhase.OPEN


class TlsTransport(asyncio.Transport, asyncio.BufferedProtocol):
    """A TLS connection, between the plain transport and the endpoint.

    When the handshake is done, `make_protocol` is called and its protocol gets `connection_made`; `on_step` is called
    after each step before that. If the handshake fails, `on_failure` is called once with the reason, unless this side
    aborts. Raises ValueError(kind, text) for a name that cannot be asked for.
    """

    __slots__ = (
        "_ended",
        "_failure",
        "_fin_waits",
        "_handshake",
        "_paused",
        "_phase",
        "_protocol",
        "_raw",
        "_replying",
        "_resting",
        "_session",
        "_shared",
        "_slow_reads",
        "_stalled",
    )

    def __init__(
        self,
        shared: TlsShared,
        config: "TlsConfig",
        make_protocol: Callable[[], asyncio.BaseProtocol],
        on_failure: Callable[[TlsFailed], None],
        *,
        server_hostname: str = "",
        handshake_bytes: int = CLIENT_HANDSHAKE_BYTES,
        on_step: Callable[[], None] = do_nothing,
    ) -> None:
        super().__init__()
        self._shared = shared
        self._session = new_session(config, server_hostname)
        self._handshake: Handshake | None = Handshake(
            self._session, make_protocol, on_failure,
            server_side=not server_hostname, most_bytes=handshake_bytes, on_step=on_step,
        )  # fmt: skip
        self._phase = TlsPhase.HANDSHAKE
        self._raw: asyncio.Transport | None = None
        self._protocol: BufferedEndpoint | None = None
        self._ended = False
        self._fin_waits = False
        self._failure: TlsFailed | None = None
        self._paused = False
        self._stalled = False
        # Stop reading until the session's own replies (key updates) are sent, so a peer cannot make us queue more.
        self._replying = False
        # Stop reading until this connection's next turn of the loop budget.
        self._resting = False
        # The next so many reads are small: those before took long.
        self._slow_reads = 0

    # --- towards the plain transport: connection --------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin the handshake; a server waits for the ClientHello."""
        self._raw = cast(asyncio.Transport, transport)
        if self._phase is not TlsPhase.HANDSHAKE:
            # Closed before the loop told of the connection: nobody else would close the socket.
            self._raw.abort()
            return
        self._raw.set_write_buffer_limits(high=0)
        if self._handshake is not None and not self._handshake.server_side:
            self._shared.loop_budget.defer_cheap(self._continue_handshake)

    def connection_lost(self, exc: Exception | None) -> None:
        """Pass the loss on; if TLS failed, with that reason instead of `exc`."""
        self._ended = True
        protocol, self._protocol = self._protocol, None
        if self._phase is TlsPhase.HANDSHAKE:
            self._refuse(TlsFailed(DisconnectCause.TLS_HANDSHAKE_FAILED, "gone", "the connection was lost in it"))
        self._phase = TlsPhase.CLOSING
        self._handshake = None
        if protocol is not None:
            protocol.connection_lost(self._failure if self._failure is not None else exc)
        self._raw = None

    def eof_received(self) -> bool:
        """Treat a FIN as the end of the stream, even without close_notify."""
        if self._phase is TlsPhase.HANDSHAKE:
            self._refuse(TlsFailed(DisconnectCause.TLS_HANDSHAKE_FAILED, "gone", "the peer ended the connection in it"))
        elif self._halted and self._session.flags & MORE:
            self._fin_waits = True
        else:
            self._stream_ended()
        return True

    def pause_writing(self) -> None:
        """Pass on that bytes are left in user space."""
        self._stalled = True
        if self._protocol is not None:
            self._protocol.pause_writing()

    def resume_writing(self) -> None:
        """Pass on that all bytes have left user space."""
        self._stalled = False
        if self._protocol is not None:
            self._protocol.resume_writing()
        if self._replying:
            asyncio.get_running_loop().call_soon(self._replies_left)

    # --- towards the plain transport: ciphertext --------------------------------------------------

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return a buffer for ciphertext that opens into no more than the endpoint's buffer can hold."""
        protocol = self._protocol
        if protocol is None or self._phase is not OPEN or self._slow_reads:
            return self._shared.small
        return self._shared.window(len(protocol.get_buffer(sizehint)))

    def buffer_updated(self, nbytes: int) -> None:
        """Open the bytes that arrived; during the handshake keep them for its next step."""
        cipher = self._shared.cipher[:nbytes]
        if self._phase is not OPEN:
            self._receive_handshake(cipher)
        elif self._ended:
            return
        elif self._halted:
            self._session.keep(bytes(cipher))
        elif nbytes < COSTLY_READ_BYTES:
            self._deliver(cipher)
        else:
            self._deliver_in_turn(cipher)

    @property
    def _halted(self) -> bool:
        return self._paused or self._replying or self._resting

    def _deliver(self, cipher: "memoryview | bytes") -> int:
        """Open what came into the endpoint's buffer, and the next, until no record is whole; return the bytes of data.

        Stops when the endpoint stops reading: the session keeps the rest.
        """
        session, data = self._session, 0
        while True:
            # The protocol may have changed since the last buffer: a client becomes a relay.
            protocol = self._protocol
            assert protocol is not None
            buffer = protocol.get_buffer(-1)
            count = session.receive(cipher, buffer)
            flags = session.flags
            if flags & OWN:
                self._send_own()
            if count:
                data += count
                protocol.buffer_updated(count)
            if not flags & MORE:
                if (flags or self._fin_waits) and self._phase is OPEN:
                    self._after_records(flags)
                return data
            if self._halted or self._phase is not OPEN:
                return data
            cipher = _NOTHING

    def _deliver_in_turn(self, cipher: memoryview) -> None:
        """Deliver a read that may take long, in the loop budget's time; rest if there is more, or if the read was slow.

        A read of 4 KiB may hold 150 key updates. Bulk reads of a relay are not left to a later turn: that would cost a
        copy of each.
        """
        budget, nbytes = self._shared.reads, len(cipher)
        little = self._slow_reads > 0 or self._shared.room <= SMALL_READ_BYTES
        if little and budget.spent():
            self._session.keep(bytes(cipher))
            self._rest()
            return
        began = budget.now()
        data = self._deliver(cipher)
        if nbytes - 2 * data > COSTLY_READ_BYTES and budget.now() - began > SLOW_SECONDS:
            self._slow_reads = SLOW_READS
            self._rest()
        elif little:
            self._slow_reads = max(0, self._slow_reads - 1)
            if nbytes >= SMALL_READ_BYTES:
                self._rest()

    def _rest(self) -> None:
        """Read no more until this connection's next turn: libuv reads a busy socket up to 32 times an iteration."""
        if not self._resting and self._raw is not None and self._phase is OPEN:
            self._resting = True
            self._raw.pause_reading()
            self._shared.reads.defer_cheap(self._rested)

    def _rested(self) -> None:
        self._resting = False
        if self._raw is not None and not self._paused:
            self._shared.reads.charge(READ_SECONDS)
        self._continue_reading()

    def _send_own(self) -> bytes:
        """Write the records that the session made by itself; once it is open, read no more until they have left."""
        records = self._session.take_own()
        if records and self._raw is not None and not self._raw.is_closing():
            self._raw.write(records)
            if self._phase is OPEN and not self._replying:
                self._replying = True
                self._raw.pause_reading()
                if not self._stalled:
                    asyncio.get_running_loop().call_soon(self._replies_left)
        return records

    def _replies_left(self) -> None:
        if self._replying and not self._stalled:
            self._replying = False
            self._continue_reading()

    def _after_records(self, flags: int) -> None:
        if flags & FAILED:
            self._failure = failed(DisconnectCause.TLS_ERROR, self._session.failure, "broken")
            self._break()
        elif (flags & PEER_CLOSED or self._fin_waits) and not self._paused:
            self._fin_waits = False
            self._stream_ended()

    def _stream_ended(self) -> None:
        if self._phase is OPEN and not self._ended and self._protocol is not None:
            self._ended = True
            self._protocol.eof_received()

    def _break(self) -> None:
        """Close the connection after an invalid record; the alert about it goes out if the kernel takes it."""
        assert self._raw is not None
        self._phase = TlsPhase.CLOSING
        self._raw.close()
        if self._raw.get_write_buffer_size():
            self._raw.abort()

    # --- handshake --------------------------------------------------------------------------------

    @property
    def handshake_waits(self) -> bool:
        """Return whether the handshake has had a step and waits for bytes of the peer."""
        return self._handshake is not None and self._handshake.stepped and not self._handshake.ready()

    def _receive_handshake(self, cipher: memoryview) -> None:
        handshake = self._handshake
        if self._phase is not TlsPhase.HANDSHAKE or handshake is None:
            return
        try:
            handshake.receive(cipher)
            ready = handshake.ready()
        except TlsFailed as failure:
            self._refuse(failure)
            return
        if ready:
            assert self._raw is not None
            self._raw.pause_reading()
            self._shared.loop_budget.defer_cheap(self._continue_handshake)

    def _continue_handshake(self) -> None:
        """Run one step of the handshake; called in this connection's turn of the loop budget."""
        handshake = self._handshake
        if self._phase is not TlsPhase.HANDSHAKE or handshake is None:
            return
        try:
            if handshake.step(self._send_own):
                self._open(handshake)
            elif handshake.ready():
                self._shared.loop_budget.defer_cheap(self._continue_handshake)
            else:
                self._resume_raw()
        except TlsFailed as failure:
            self._refuse(failure)
        except Exception as error:
            self._refuse(TlsFailed.of(error))

    def _open(self, handshake: Handshake) -> None:
        assert self._raw is not None
        self._phase = OPEN
        self._session.keep(handshake.received)
        protocol = self._protocol = cast(BufferedEndpoint, handshake.make_protocol())
        # Drop the handshake: its callables refer to the code that waited for the end of it.
        self._handshake = None
        protocol.connection_made(self)
        if self._stalled:
            protocol.pause_writing()
        if not self._paused:
            self._continue_reading()

    def _refuse(self, failure: TlsFailed) -> None:
        """Close the connection before there is an endpoint above, and call `on_failure`."""
        self._phase = TlsPhase.CLOSING
        handshake, self._handshake = self._handshake, None
        if self._raw is not None and not self._raw.is_closing():
            self._raw.close()
            if self._raw.get_write_buffer_size():
                self._raw.abort()
        if handshake is not None:
            handshake.on_failure(failure)

    # --- towards the endpoint: reading ------------------------------------------------------------

    def pause_reading(self) -> None:
        """Stop reading; bytes that are read already stay in the session, less than a small read and a record."""
        self._paused = True
        if self._raw is not None:
            self._raw.pause_reading()

    def resume_reading(self) -> None:
        """Start reading again, from the next turn of the loop on; bytes that are read already come first."""
        if not self._paused:
            return
        self._paused = False
        if self._fin_waits or self._session.flags:
            asyncio.get_running_loop().call_soon(self._continue_reading)
        else:
            self._resume_raw()

    def _continue_reading(self) -> None:
        if self._halted or self._phase is not OPEN:
            return
        try:
            flags = self._session.flags
            if flags & MORE and not self._ended:
                self._deliver(_NOTHING)
            elif flags or self._fin_waits:
                self._after_records(flags)
        except Exception as error:
            # Loops end a connection for what `buffer_updated` raises; here it would stay, and not be read any more.
            self._failure = TlsFailed.of(error)
            self.abort()
            told = {"message": "reading of kept records failed", "exception": error, "transport": self}
            asyncio.get_running_loop().call_exception_handler(told)
        if not self._paused and self._phase is OPEN:
            self._resume_raw()

    def _resume_raw(self) -> None:
        # uvloop raises for a transport that was reset but has not called `connection_lost` yet.
        if self._raw is not None and not (self._replying or self._resting) and not self._raw.is_closing():
            self._raw.resume_reading()

    def is_reading(self) -> bool:
        """Return whether the endpoint reads."""
        return not self._paused

    def leave(self) -> "tuple[asyncio.Transport, TlsSession]":
        """Return the plain transport and the session, with which a relay's thread goes on; this transport is over."""
        raw, self._raw, self._protocol = self._raw, None, None
        assert raw is not None
        self._phase = TlsPhase.CLOSING
        return raw, self._session

    # --- towards the endpoint: writing ------------------------------------------------------------

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Seal `data` and write it, or do nothing if the connection is closing."""
        self.writelines((data,))

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        """Seal several pieces and write them with one call; keep no reference to them."""
        if self._phase is not OPEN or self._raw is None:
            return
        try:
            records = self._session.seal(list(list_of_data))
        except ValueError as error:
            self._failure = failed(DisconnectCause.TLS_ERROR, error.args, "broken")
            self.abort()
            return
        if records:
            self._raw.write(records)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Set the limits of the plain transport, which count ciphertext."""
        if self._raw is not None:
            self._raw.set_write_buffer_limits(high, low)

    def get_write_buffer_size(self) -> int:
        """Return the bytes of ciphertext in user space: the plaintext of a write is never kept."""
        return 0 if self._raw is None else self._raw.get_write_buffer_size()

    def can_write_eof(self) -> bool:
        """Return False: few peers go on sending after they got close_notify."""
        return False

    # --- towards the endpoint: the rest -----------------------------------------------------------

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return `tls_session`, `peer_certificate` (DER or None), or what the plain transport knows.

        aiohttp asks for `sslcontext`, to know whether a request came by https.
        """
        if name in ("tls_session", "sslcontext"):
            return self._session
        if name == "peer_certificate":
            return next(iter(self._session.peer_certificates()), None)
        return default if self._raw is None else self._raw.get_extra_info(name, default)

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Replace the endpoint."""
        self._protocol = cast(BufferedEndpoint, protocol)

    def get_protocol(self) -> asyncio.BaseProtocol:
        """Return the endpoint; None before the end of the handshake."""
        return cast(asyncio.BaseProtocol, self._protocol)

    def is_closing(self) -> bool:
        """Return whether writes are ignored, because the connection closes or has failed."""
        return self._phase is TlsPhase.CLOSING

    def close(self) -> None:
        """Send close_notify after the written bytes, and close."""
        if self._phase is OPEN and self._raw is not None and not self._raw.is_closing():
            with suppress(ValueError):
                self._raw.write(self._session.close_notify())
        self._phase = TlsPhase.CLOSING
        if self._raw is not None:
            self._raw.close()

    def abort(self) -> None:
        """Close at once and drop what is unsent."""
        self._phase = TlsPhase.CLOSING
        if self._raw is not None:
            self._raw.abort()
