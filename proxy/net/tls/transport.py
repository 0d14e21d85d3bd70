"""A TLS connection: a protocol towards the plain transport below, a transport towards the endpoint above.

Rule: an open connection keeps no buffer, only OpenSSL's own object. Ciphertext is read into one buffer of the loop and
goes through one pair of BIOs of the loop, which are empty whenever other code is called. Plaintext goes straight into
the endpoint's buffer. Bytes that a write did not push into the kernel are in the plain transport and nowhere else, so
"drained" means the same as without TLS (docs/adr/0011). The handshake is in `handshake.py`.
"""

import asyncio
import ssl
from collections.abc import Callable
from contextlib import suppress
from typing import cast

from protocol.frame_position import FramePosition
from proxy.core.errors import DisconnectCause
from proxy.core.tasks import do_nothing
from proxy.net.tls.failures import TlsFailed, describe
from proxy.net.tls.handshake import Handshake
from proxy.net.tls.read_turns import COSTLY_READ_BYTES, NO_DATA_BYTES, RECORD_PAYS_BYTES, ReadTurns
from proxy.net.tls.sealed_writes import OPEN, TlsPhase
from proxy.net.tls.shared import BufferedEndpoint, TlsShared, direct_calls
from proxy.net.transport import SealedStream, Truncation


class TlsTransport(asyncio.BufferedProtocol, ReadTurns, SealedStream):
    """A TLS connection, between the plain transport and the endpoint.

    When the handshake is done, `make_protocol` is called and its protocol gets `connection_made`; `on_step` is called
    after each step before that. If the handshake fails, `on_failure` is called once with the reason, unless this side
    aborts.
    """

    __slots__ = (
        "_decrypt",
        "_ended",
        "_fin_waits",
        "_frames",
        "_handshake",
        "_notified",
        "_protocol",
        "_server_side",
    )

    def __init__(
        self,
        shared: TlsShared,
        context: ssl.SSLContext,
        make_protocol: Callable[[], asyncio.BaseProtocol],
        on_failure: Callable[[TlsFailed], None],
        *,
        server_side: bool = False,
        server_hostname: str | None = None,
        on_step: Callable[[], None] = do_nothing,
    ) -> None:
        super().__init__()
        self._shared = shared
        self._server_side = server_side
        self._ssl_object = context.wrap_bio(shared.incoming, shared.outgoing, server_side, server_hostname)
        self._decrypt, self._encrypt = direct_calls(self._ssl_object)
        self._handshake: Handshake | None = Handshake(
            shared, self._ssl_object, make_protocol, on_failure, server_side=server_side, on_step=on_step
        )
        self._phase = TlsPhase.HANDSHAKE
        self._raw: asyncio.Transport | None = None
        self._protocol: BufferedEndpoint | None = None
        self._ended = False
        self._fin_waits = False
        # Whether the peer has sent close_notify, and the position in its stream, for relays.
        self._notified = False
        self._frames: FramePosition | None = None
        self._failure: TlsFailed | None = None

    # --- towards the plain transport: connection --------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin the handshake; a server waits for the ClientHello."""
        self._raw = cast(asyncio.Transport, transport)
        if self._phase is not TlsPhase.HANDSHAKE:
            # Closed before the loop told of the connection: nobody else would close the socket.
            self._raw.abort()
            return
        self._raw.set_write_buffer_limits(high=0)
        if not self._server_side:
            self._shared.loop_budget.defer_cheap(self._continue_handshake)

    def connection_lost(self, exc: Exception | None) -> None:
        """Pass the loss on; if TLS failed, with that reason instead of `exc`."""
        # An RST is an end without close_notify, as a bare FIN is: `truncation` tells relays of it.
        self._ended = True
        protocol, self._protocol = self._protocol, None
        if self._phase is TlsPhase.HANDSHAKE:
            self._refuse(TlsFailed(DisconnectCause.TLS_HANDSHAKE_FAILED, "gone", "the connection was lost in it"))
        self._phase = TlsPhase.CLOSING
        self._held = b""
        self._handshake = None
        if protocol is not None:
            protocol.connection_lost(self._failure if self._failure is not None else exc)
        self._raw = None

    def eof_received(self) -> bool:
        """Treat a FIN as the end of the stream, even without close_notify; `truncation` tells relays of that."""
        if self._phase is TlsPhase.HANDSHAKE:
            self._refuse(TlsFailed(DisconnectCause.TLS_HANDSHAKE_FAILED, "gone", "the peer ended the connection in it"))
        elif (self._paused or self._replying or self._resting) and self._has_rest:
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
        """Return a buffer for ciphertext that decrypts into no more than the endpoint's buffer can hold."""
        protocol = self._protocol
        if protocol is None or self._phase is not OPEN or self._slow_reads:
            return self._shared.small
        return self._shared.window(len(protocol.get_buffer(sizehint)))

    def buffer_updated(self, nbytes: int) -> None:
        """Decrypt the bytes that arrived; during the handshake keep them for its next step."""
        shared = self._shared
        cipher = shared.cipher[:nbytes]
        if self._phase is not OPEN:
            self._receive_handshake(cipher)
        elif not self._ended:
            incoming = shared.incoming
            if self._held:
                incoming.write(self._held)
                self._held = b""
            incoming.write(cipher)
            if self._paused or self._replying or self._resting:
                self._held = incoming.read()
            elif nbytes < COSTLY_READ_BYTES:
                self._deliver()
            else:
                self._deliver_in_turn(nbytes)

    @property
    def _has_rest(self) -> bool:
        return bool(self._held) or self._ssl_object.pending() > 0

    def _deliver(self) -> int:
        """Decrypt the ciphertext in the BIO into the endpoint's buffer, until there is no more whole record.

        Return the bytes of data that the endpoint got.
        """
        shared, protocol = self._shared, self._protocol
        assert protocol is not None
        fed = shared.incoming.pending
        # Ask for the buffer again: a buffer kept since `get_buffer` would stay alive without being counted.
        buffer = protocol.get_buffer(-1)
        try:
            count = self._decrypt(len(buffer), buffer)
        except ssl.SSLError as error:
            self._note_error(error)
            self._pass_on(buffer, 0, 0, False, fed)
            return 0
        # Shortcut for the usual read, one record of a small message: the general way costs a twentieth more of our own
        # time.
        if 0 < count < len(buffer) and not (shared.incoming.pending or shared.outgoing.pending):
            idle = self._idle_bytes + fed - 2 * count - RECORD_PAYS_BYTES
            if idle <= NO_DATA_BYTES:
                self._idle_bytes = idle if idle > 0 else 0
                if self._frames is not None:
                    self._frames.feed(buffer, count)
                protocol.buffer_updated(count)
                return count
        filled, records, more = self._fill(buffer, count)
        if self._pass_on(buffer, filled, records, more, fed):
            filled += self._deliver_rest()
        return filled

    def _deliver_rest(self) -> int:
        """Fill one buffer of the endpoint after the other, until no record is whole or the endpoint stops reading.

        Return the bytes of data that the endpoint got.
        """
        data = 0
        while not self._paused and not self._replying and self._phase is OPEN:
            # The protocol may have changed since the last buffer: a client becomes a relay.
            protocol = self._protocol
            assert protocol is not None
            self._shared.incoming.write(self._held)
            fed, self._held = len(self._held), b""
            buffer = protocol.get_buffer(-1)
            filled, records, more = self._fill(buffer, 0)
            data += filled
            if not self._pass_on(buffer, filled, records, more, fed):
                break
        return data

    def _fill(self, buffer: memoryview, filled: int) -> tuple[int, int, bool]:
        """Decrypt into `buffer` from `filled` on; return the new fill, its records, and whether more can be decrypted.

        Bytes that are in the buffer already are one record.
        """
        incoming, decrypt, room = self._shared.incoming, self._decrypt, len(buffer)
        records = 1 if filled else 0
        try:
            while filled < room:
                # Decrypting an empty BIO would raise, which costs as much as a small record. OpenSSL holds no rest of
                # the last record: the buffer had room for all of it.
                if filled and not incoming.pending:
                    return filled, records, False
                count = decrypt(room, buffer[filled:])
                if not count:
                    self._fin_waits = self._notified = True
                    return filled, records, False
                filled += count
                records += 1
        except ssl.SSLError as error:
            self._note_error(error)
            return filled, records, False
        return filled, records, incoming.pending > 0 or self._ssl_object.pending() > 0

    def _note_error(self, error: ssl.SSLError) -> None:
        if isinstance(error, ssl.SSLZeroReturnError):
            self._fin_waits = self._notified = True
        elif not isinstance(error, ssl.SSLWantReadError):
            self._failure = TlsFailed(DisconnectCause.TLS_ERROR, "broken", describe(error))

    def _pass_on(self, buffer: memoryview, count: int, records: int, more: bool, fed: int) -> bool:
        """Pass `count` bytes of `records` in `buffer`, decrypted from `fed` bytes, to the endpoint; return `more`.

        The ciphertext that is left is in `_held` then.
        """
        protocol, incoming = self._protocol, self._shared.incoming
        assert protocol is not None
        # Empty the BIOs first: other connections use them during the calls below.
        if incoming.pending:
            self._held = incoming.read()
            fed -= len(self._held)
        self._count_idle(fed, count, records)
        replies = self._flush()
        if replies:
            self._await_replies(len(replies))
        if count:
            if self._frames is not None:
                self._frames.feed(buffer, count)
            protocol.buffer_updated(count)
        if not more and self._phase is OPEN:
            self._after_decryption()
        return more

    def _after_decryption(self) -> None:
        if self._failure is not None:
            self._break()
        elif self._fin_waits and not self._paused:
            self._fin_waits = False
            self._held = b""
            self._stream_ended()

    def _stream_ended(self) -> None:
        if self._phase is OPEN and not self._ended and self._protocol is not None:
            self._ended = True
            self._protocol.eof_received()

    def _break(self) -> None:
        """Close the connection after an invalid record; OpenSSL's alert about it goes out if the kernel takes it."""
        assert self._raw is not None
        self._phase = TlsPhase.CLOSING
        self._raw.close()
        if self._raw.get_write_buffer_size():
            self._raw.abort()

    def _flush(self) -> bytes:
        """Write the records that OpenSSL made by itself, and return them."""
        records = self._shared.outgoing.read()
        if records and self._raw is not None and not self._raw.is_closing():
            self._raw.write(records)
        return records

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
            if handshake.step(self._flush):
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
        self._held = handshake.received
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
        self._shared.outgoing.read()
        if self._raw is not None and not self._raw.is_closing():
            self._raw.close()
            if self._raw.get_write_buffer_size():
                self._raw.abort()
        if handshake is not None:
            handshake.on_failure(failure)

    # --- towards the endpoint: reading ------------------------------------------------------------

    def pause_reading(self) -> None:
        """Stop reading; bytes that are read already stay here, less than a small read and a record."""
        self._paused = True
        if self._raw is not None:
            self._raw.pause_reading()

    def resume_reading(self) -> None:
        """Start reading again, from the next turn of the loop on; bytes that are read already come first."""
        if not self._paused:
            return
        self._paused = False
        if self._has_rest or self._fin_waits:
            asyncio.get_running_loop().call_soon(self._continue_reading)
        else:
            self._resume_raw()

    def _continue_reading(self) -> None:
        if self._paused or self._replying or self._resting or self._phase is not OPEN:
            return
        if self._has_rest and not self._ended:
            self._deliver_rest()
        elif self._fin_waits:
            self._after_decryption()
        if not self._paused and self._phase is OPEN:
            self._resume_raw()

    def is_reading(self) -> bool:
        """Return whether the endpoint reads."""
        return not self._paused

    def follow_frames(self, received: bytes) -> None:
        self._frames = FramePosition()
        self._frames.feed(received, len(received))

    @property
    def truncation(self) -> Truncation | None:
        if not self._ended or self._notified or self._frames is None:
            return None
        return Truncation.INSIDE_FRAME if self._frames.inside else Truncation.BETWEEN_FRAMES

    # --- towards the endpoint: the rest -----------------------------------------------------------

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Replace the endpoint."""
        self._protocol = cast(BufferedEndpoint, protocol)

    def get_protocol(self) -> asyncio.BaseProtocol:
        """Return the endpoint; None before the end of the handshake."""
        return cast(asyncio.BaseProtocol, self._protocol)

    def close(self) -> None:
        """Send close_notify after the written bytes, and close."""
        if self._phase is OPEN:
            # `unwrap` raises as long as the peer's close_notify is missing; we do not wait for it.
            with suppress(ssl.SSLError):
                self._ssl_object.unwrap()
            self._flush()
        self._phase = TlsPhase.CLOSING
        if self._raw is not None:
            self._raw.close()

    def abort(self) -> None:
        """Close at once and drop what is unsent."""
        self._phase = TlsPhase.CLOSING
        if self._raw is not None:
            self._raw.abort()
