"""A TLS connection: a protocol towards the plain transport below, a transport towards the endpoint above.

Rule: nothing is kept for a connection but OpenSSL's own object. Ciphertext is read into one buffer of the loop and
goes through one pair of BIOs of the loop, which are empty whenever anybody else is called; plaintext goes straight
into the endpoint's place. What a write did not push into the kernel is in the plain transport and nowhere else, so
that "drained" means the same as without TLS (docs/adr/0011).
"""

import asyncio
import ssl
from collections.abc import Callable, Iterable
from contextlib import suppress
from enum import Enum
from typing import Any, Final, Protocol, cast

from proxy.core.errors import DisconnectCause
from proxy.net.tls.failures import TlsFailed, describe
from proxy.net.tls.hello import asks_again, hello_end
from proxy.net.tls.shared import RECORD_BYTES, TlsShared, direct_calls

# So much is encrypted before the ciphertext is taken out: the BIO keeps the size of its fullest moment for good.
SEALED_AT_ONCE_BYTES: Final = 64 * 1024
# So much ciphertext in a row may bring no data: a record that is not whole, and a broker's session tickets.
BARREN_BYTES: Final = RECORD_BYTES + 16 * 1024
# So much may OpenSSL itself answer in the life of a connection: 2,400 updates of keys (27 bytes each). Peers that send
# them do so every 2^24 records or 2^37 bytes; each costs as much processor time as a small request.
OWN_ANSWERS_BYTES: Final = 64 * 1024
_HANDSHAKE_RECORD: Final = 0x16


class _Above(Protocol):
    """What is above: a protocol with buffers that gives views of them."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None: ...
    def connection_lost(self, exc: Exception | None) -> None: ...
    def pause_writing(self) -> None: ...
    def resume_writing(self) -> None: ...
    def get_buffer(self, sizehint: int) -> memoryview: ...
    def buffer_updated(self, nbytes: int) -> None: ...
    def eof_received(self) -> bool | None: ...


class _Phase(Enum):
    HANDSHAKE = 1
    OPEN = 2
    CLOSING = 3


# Asked for in every read and write: a global is found at once, a member of an enumeration is not.
_OPEN: Final = _Phase.OPEN


class TlsTransport(asyncio.BufferedProtocol, asyncio.Transport):
    """One TLS connection.

    `make_protocol` is called when the handshake is done, and what it gives hears `connection_made` then. If there is
    none, `on_failure` is called once with the reason, unless this side aborts.
    """

    __slots__ = (
        "_answered",
        "_answering",
        "_barren",
        "_ended",
        "_failure",
        "_fin_waits",
        "_held",
        "_hello_due",
        "_make_protocol",
        "_on_failure",
        "_paused",
        "_phase",
        "_protocol",
        "_raw",
        "_seal",
        "_sealer",
        "_server_side",
        "_shared",
        "_stalled",
        "_unheard",
        "_unseal",
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
    ) -> None:
        super().__init__()
        self._shared = shared
        self._server_side = server_side
        self._sealer = context.wrap_bio(shared.incoming, shared.outgoing, server_side, server_hostname)
        self._unseal, self._seal = direct_calls(self._sealer)
        self._make_protocol = make_protocol
        self._on_failure = on_failure
        self._phase = _Phase.HANDSHAKE
        self._raw: asyncio.Transport | None = None
        self._protocol: _Above | None = None
        # Ciphertext that was read and is not decrypted: at most one small read, or a ClientHello that is not whole.
        self._held = b""
        self._paused = False
        self._stalled = False
        self._unheard = self._hello_due = server_side
        # Until what OpenSSL itself answered has left, nothing is read that it could answer.
        self._answering = False
        self._answered = 0
        self._barren = 0
        self._ended = False
        self._fin_waits = False
        self._failure: TlsFailed | None = None

    # --- towards the plain transport: connection --------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin the handshake (asyncio's callback)."""
        self._raw = cast(asyncio.Transport, transport)
        self._raw.set_write_buffer_limits(high=0)
        if not self._server_side:
            self._shared.loop_budget.defer_cheap(self._shake)

    def connection_lost(self, exc: Exception | None) -> None:
        """Pass the end on, with the reason if it was TLS that broke."""
        protocol, self._protocol = self._protocol, None
        if self._phase is _Phase.HANDSHAKE:
            self._refuse(TlsFailed(DisconnectCause.TLS_HANDSHAKE_FAILED, "gone", "the connection was lost in it"))
        self._phase = _Phase.CLOSING
        self._held = b""
        if protocol is not None:
            protocol.connection_lost(self._failure if self._failure is not None else exc)
        self._raw = None

    def eof_received(self) -> bool:
        """Take a FIN for the end of the stream, with or without close_notify before it: frames know their length."""
        if self._phase is _Phase.HANDSHAKE:
            self._refuse(TlsFailed(DisconnectCause.TLS_HANDSHAKE_FAILED, "gone", "the peer ended the connection in it"))
        elif (self._paused or self._answering) and self._has_rest:
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
        if self._answering:
            asyncio.get_running_loop().call_soon(self._answers_left)

    # --- towards the plain transport: ciphertext --------------------------------------------------

    def get_buffer(self, sizehint: int) -> memoryview:
        """Read little for an endpoint that reads little, and never more than its place can hold decrypted."""
        protocol = self._protocol
        if protocol is None or self._phase is not _OPEN:
            return self._shared.small
        return self._shared.window(len(protocol.get_buffer(sizehint)))

    def buffer_updated(self, nbytes: int) -> None:
        """Decrypt what has come; in the handshake it waits for its turn, unread behind it."""
        shared = self._shared
        cipher = shared.cipher[:nbytes]
        if self._phase is not _OPEN:
            self._keep_for_handshake(cipher)
        elif not self._ended:
            incoming = shared.incoming
            if self._held:
                incoming.write(self._held)
                self._held = b""
            incoming.write(cipher)
            if self._paused or self._answering:
                self._held = incoming.read()
            else:
                self._deliver()

    def _keep_for_handshake(self, cipher: memoryview) -> None:
        if self._phase is not _Phase.HANDSHAKE or (self._unheard and not self._talks_tls(cipher)):
            return
        self._held += bytes(cipher)
        if self._may_shake():
            assert self._raw is not None
            self._raw.pause_reading()
            self._shared.loop_budget.defer_cheap(self._shake)

    @property
    def _has_rest(self) -> bool:
        return bool(self._held) or self._sealer.pending() > 0

    def _deliver(self) -> None:
        """Decrypt what has come into the endpoint's place, and whatever it gives after that."""
        shared, protocol = self._shared, self._protocol
        assert protocol is not None
        fed = shared.incoming.pending
        # Asked for again rather than kept from `get_buffer`: what is kept stays alive with nobody to pay for it.
        place = protocol.get_buffer(-1)
        try:
            count = self._unseal(len(place), place)
        except ssl.SSLError as error:
            self._no_record(error)
            self._hand_over(0, False, fed)
            return
        # Most reads are one record of a small message: the way below costs them a twentieth of our own time more.
        if 0 < count < len(place) and not (shared.incoming.pending or shared.outgoing.pending):
            self._barren = 0
            protocol.buffer_updated(count)
        elif self._hand_over(*self._fill(place, count), fed):
            self._deliver_rest()

    def _deliver_rest(self) -> None:
        """Fill the endpoint's places, one after the other, until nothing is whole or it reads no more."""
        while not self._paused and not self._answering and self._phase is _OPEN:
            # Another may be reading now: a client that became a relay.
            protocol = self._protocol
            assert protocol is not None
            self._shared.incoming.write(self._held)
            fed, self._held = len(self._held), b""
            if not self._hand_over(*self._fill(protocol.get_buffer(-1), 0), fed):
                return

    def _fill(self, place: memoryview, filled: int) -> tuple[int, bool]:
        """Decrypt into `place` behind what is there; gives all that is there now, and whether there is still more."""
        incoming, unseal, room = self._shared.incoming, self._unseal, len(place)
        try:
            while filled < room:
                # Asking for what is not there would raise, which costs as much as a small record. Of a record nothing
                # is left: it had room.
                if filled and not incoming.pending:
                    return filled, False
                count = unseal(room, place[filled:])
                if not count:
                    self._fin_waits = True
                    return filled, False
                filled += count
        except ssl.SSLError as error:
            self._no_record(error)
            return filled, False
        return filled, incoming.pending > 0 or self._sealer.pending() > 0

    def _no_record(self, error: ssl.SSLError) -> None:
        if isinstance(error, ssl.SSLZeroReturnError):
            self._fin_waits = True
        elif not isinstance(error, ssl.SSLWantReadError):
            self._failure = TlsFailed(DisconnectCause.TLS_ERROR, "broken", describe(error))

    def _hand_over(self, count: int, more: bool, fed: int) -> bool:
        """Hand over what was decrypted of `fed` bytes; gives `more` back, whose ciphertext is in `_held` then."""
        protocol, incoming = self._protocol, self._shared.incoming
        assert protocol is not None
        # Whoever is called from here on may use the BIOs.
        if incoming.pending:
            self._held = incoming.read()
        self._count_barren(0 if count else fed)
        answered = self._flush()
        if answered:
            self._answers_leave(len(answered))
        if count:
            protocol.buffer_updated(count)
        if not more and self._phase is _OPEN:
            self._after_unsealing()
        return more

    def _after_unsealing(self) -> None:
        if self._failure is not None:
            self._break()
        elif self._fin_waits and not self._paused:
            self._fin_waits = False
            self._held = b""
            self._stream_ended()

    def _count_barren(self, fed: int) -> None:
        self._barren = self._barren + fed if fed else 0
        if self._barren > BARREN_BYTES and self._failure is None:
            self._failure = _idle_talk(f"{self._barren} bytes in a row without data, expected at most {BARREN_BYTES}")

    def _answers_leave(self, count: int) -> None:
        """Read no more before what OpenSSL answered has left, and not in this turn of the loop."""
        self._answered += count
        if self._answered > OWN_ANSWERS_BYTES and self._failure is None:
            self._failure = _idle_talk(f"{self._answered} bytes of answers, expected at most {OWN_ANSWERS_BYTES}")
        elif not self._answering and self._raw is not None:
            self._answering = True
            self._raw.pause_reading()
            if not self._stalled:
                asyncio.get_running_loop().call_soon(self._answers_left)

    def _answers_left(self) -> None:
        if self._answering and not self._stalled:
            self._answering = False
            self._go_on()

    def _stream_ended(self) -> None:
        if self._phase is _OPEN and not self._ended and self._protocol is not None:
            self._ended = True
            self._protocol.eof_received()

    def _break(self) -> None:
        """End the connection because a record of the peer's is none; the alert that says so may still get through."""
        assert self._raw is not None
        self._phase = _Phase.CLOSING
        self._raw.close()
        if self._raw.get_write_buffer_size():
            self._raw.abort()

    def _flush(self) -> bytes:
        """Write what OpenSSL has to say of itself; gives it."""
        sealed = self._shared.outgoing.read()
        if sealed and self._raw is not None and not self._raw.is_closing():
            self._raw.write(sealed)
        return sealed

    # --- handshake --------------------------------------------------------------------------------

    def _talks_tls(self, first: memoryview) -> bool:
        self._unheard = False
        if first[0] == _HANDSHAKE_RECORD:
            return True
        self._refuse(TlsFailed(DisconnectCause.NOT_TLS, "not_tls", "the client does not speak TLS"))
        return False

    def _may_shake(self) -> bool:
        """Tell whether OpenSSL may have what is held: not a part of a ClientHello, nor a monstrous one."""
        if not self._hello_due:
            return bool(self._held)
        try:
            return hello_end(self._held) > 0
        except TlsFailed as failure:
            self._refuse(failure)
            return False

    def _shake(self) -> None:
        """Do a step of the handshake; called when it is this connection's turn."""
        if self._phase is not _Phase.HANDSHAKE:
            return
        try:
            if self._step():
                self._open()
            elif self._may_shake():
                self._shared.loop_budget.defer_cheap(self._shake)
            else:
                self._read_on()
        except Exception as error:
            self._refuse(TlsFailed.of(error))

    def _step(self) -> bool:
        incoming, held, answer = self._shared.incoming, self._held, b""
        end = hello_end(held) if self._hello_due else len(held)
        if self._hello_due and not end:
            # A second turn for one read.
            return False
        incoming.write(held[:end])
        self._held = held[end:]
        try:
            self._sealer.do_handshake()
        except ssl.SSLWantReadError:
            pass
        else:
            self._hello_due = False
            return True
        finally:
            if incoming.pending:
                self._held = incoming.read() + self._held
            answer = self._flush()
        self._hello_due = self._hello_due and asks_again(answer)
        return False

    def _open(self) -> None:
        assert self._raw is not None
        self._phase = _OPEN
        protocol = self._protocol = cast(_Above, self._make_protocol())
        # They know who waited for the handshake.
        self._make_protocol = self._on_failure = _over
        protocol.connection_made(self)
        if self._stalled:
            protocol.pause_writing()
        if not self._paused:
            self._go_on()

    def _refuse(self, failure: TlsFailed) -> None:
        """End the connection before there is anything above it."""
        self._phase = _Phase.CLOSING
        self._shared.outgoing.read()
        if self._raw is not None and not self._raw.is_closing():
            self._raw.close()
            if self._raw.get_write_buffer_size():
                self._raw.abort()
        self._on_failure(failure)

    # --- towards the endpoint: reading ------------------------------------------------------------

    def pause_reading(self) -> None:
        """Stop reading; what is read already waits here, less than a small read and a record."""
        self._paused = True
        if self._raw is not None:
            self._raw.pause_reading()

    def resume_reading(self) -> None:
        """Read again, first what waits here; never from within this call, as with any transport."""
        if not self._paused:
            return
        self._paused = False
        if self._has_rest or self._fin_waits:
            asyncio.get_running_loop().call_soon(self._go_on)
        else:
            self._read_on()

    def _read_on(self) -> None:
        # uvloop raises for a transport that was reset and has not said so yet.
        if self._raw is not None and not self._answering and not self._raw.is_closing():
            self._raw.resume_reading()

    def _go_on(self) -> None:
        if self._paused or self._answering or self._phase is not _OPEN:
            return
        if self._has_rest and not self._ended:
            self._deliver_rest()
        elif self._fin_waits:
            self._after_unsealing()
        if not self._paused and self._phase is _OPEN:
            self._read_on()

    def is_reading(self) -> bool:
        """Tell whether the endpoint reads."""
        return not self._paused

    # --- towards the endpoint: writing ------------------------------------------------------------

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Encrypt `data` and write it, or do nothing if the connection is closing."""
        raw = self._raw
        if len(data) > SEALED_AT_ONCE_BYTES or not data:
            self.writelines((data,))
        elif self._phase is _OPEN and raw is not None:
            try:
                self._seal(data)
            except ssl.SSLError as error:
                self._cannot_seal(error)
                return
            raw.write(self._shared.outgoing.read())

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        """Encrypt several pieces and write them with one call; none of them is kept."""
        if self._phase is not _OPEN or self._raw is None:
            return
        outgoing, seal, sealed = self._shared.outgoing, self._seal, []
        try:
            for piece in list_of_data:
                if len(piece) > SEALED_AT_ONCE_BYTES:
                    view = memoryview(piece)
                    for start in range(0, len(view), SEALED_AT_ONCE_BYTES):
                        seal(view[start : start + SEALED_AT_ONCE_BYTES])
                        sealed.append(outgoing.read())
                elif piece:
                    seal(piece)
                    if outgoing.pending >= SEALED_AT_ONCE_BYTES:
                        sealed.append(outgoing.read())
        except ssl.SSLError as error:
            self._cannot_seal(error)
            return
        if outgoing.pending:
            sealed.append(outgoing.read())
        if len(sealed) == 1:
            self._raw.write(sealed[0])
        elif sealed:
            self._raw.writelines(sealed)

    def _cannot_seal(self, error: ssl.SSLError) -> None:
        self._shared.outgoing.read()
        self._failure = TlsFailed(DisconnectCause.TLS_ERROR, "broken", describe(error))
        self.abort()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Set the marks of the plain transport: they count ciphertext."""
        if self._raw is not None:
            self._raw.set_write_buffer_limits(high, low)

    def get_write_buffer_size(self) -> int:
        """Count the bytes of ciphertext in user space: all there is of what was written."""
        return 0 if self._raw is None else self._raw.get_write_buffer_size()

    def can_write_eof(self) -> bool:
        """Deny it: few peers go on sending to one that has said close_notify."""
        return False

    # --- towards the endpoint: the rest -----------------------------------------------------------

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Give what the plain transport knows, `ssl_object`, `sslcontext` or `peer_certificate` (DER, None without)."""
        if name == "ssl_object":
            return self._sealer
        if name == "sslcontext":
            return self._sealer.context
        if name == "peer_certificate":
            return self._sealer.getpeercert(binary_form=True)
        return default if self._raw is None else self._raw.get_extra_info(name, default)

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Let another endpoint take over."""
        self._protocol = cast(_Above, protocol)

    def get_protocol(self) -> asyncio.BaseProtocol:
        """Give the endpoint; before the handshake is done there is none."""
        return cast(asyncio.BaseProtocol, self._protocol)

    def is_closing(self) -> bool:
        """Tell whether nothing is taken any more."""
        return self._phase is _Phase.CLOSING

    def close(self) -> None:
        """Say close_notify and close, behind what was written."""
        if self._phase is _OPEN:
            # It complains that the peer has not said it yet; nobody waits for that.
            with suppress(ssl.SSLError):
                self._sealer.unwrap()
            self._flush()
        self._phase = _Phase.CLOSING
        if self._raw is not None:
            self._raw.close()

    def abort(self) -> None:
        """Close at once and forget what is unsent."""
        self._phase = _Phase.CLOSING
        if self._raw is not None:
            self._raw.abort()


def _idle_talk(detail: str) -> TlsFailed:
    return TlsFailed(DisconnectCause.TLS_ERROR, "broken", f"the peer keeps tls busy with itself: got {detail}")


def _over(*_: object) -> Any:
    """Stand for what is not called a second time."""
