"""What the extension offers to the proxy; `ENGINE_ABI` of both sides changes with it.

No call waits for a system call of a thread, but `RelayEngine.stop`. Times are those of the loop's clock, in seconds.
"""

from collections.abc import Sequence

_Bytes = bytes | bytearray | memoryview

class RelayEngine:
    """Relays pairs of sockets, and writes topic lists, in threads of its own."""

    def __init__(
        self,
        threads: int,
        buffer_bytes: int,
        linger_ms: tuple[int, int],
        pool_bytes: int = 0,
        unsent_bytes: int = 0,
        books: SlotBooks | None = None,
        narrow_windows: bool = False,
    ) -> None: ...
    @property
    def event_fd(self) -> int:
        """Return a descriptor that is readable while events wait."""

    def join(
        self,
        client_fd: int,
        broker_fd: int,
        to_client: bytes,
        to_broker: bytes,
        scan: bool,
        count: bool = False,
        paused: tuple[int, int] = (0, 0),
        client_tls: TlsSession | None = None,
        broker_tls: TlsSession | None = None,
        tap: CommandTap | None = None,
    ) -> int:
        """Take two sockets and return the pair's number; raises OSError or RuntimeError, then the caller owns both.

        `paused`: the reasons for which client and broker are not read from the first byte on. Sessions of TLS are the
        engine's even then. `tap`: where commands wait, if they are logged.
        """

    def make_tap(self) -> CommandTap:
        """Return what a pair is joined with whose commands are logged."""

    def pause(self, pair: int, direction: int, reason: int) -> None:
        """Add reasons not to read a direction."""

    def resume(self, pair: int, direction: int, reason: int) -> None:
        """Remove reasons not to read a direction."""

    def pass_frames(self, pair: int, generation: int) -> None:
        """Pass the frames of this generation."""

    def take_topic(self, pair: int, generation: int) -> bytes | None:
        """Return the topic of a PRODUCER that waits, once; None if the question is over."""

    def assign(self, pair: int, generation: int, slot: int) -> None:
        """Answer to which slot the PRODUCER of this generation belongs; it then has a hold of its own on the slot."""

    def drip(self, pair: int, direction: int, whole_read: bool) -> None:
        """Pass one frame, or one read, although reasons pause a direction."""

    def seen_of(self, pair: int) -> int:
        """Return what the client has sent."""

    def unread_of(self, pair: int) -> int:
        """Return the bytes of the client that waited in the kernel at the last call."""

    def close(self, pair: int, stall_ms: int) -> None:
        """Send what is held, then close both sockets, at the latest when no byte is taken for `stall_ms`."""

    def abort(self, pair: int) -> None:
        """Close both sockets at once."""

    def events(self, most: int) -> list[tuple[int, int, int, int, int, int, int, str]]:
        """Return the oldest events: kind, pair, five numbers, and of ENDED why the TLS of a side has failed."""

    def snapshot_of(self, pair: int) -> tuple[int, ...] | None:
        """Return the record of a pair; None after its last event was taken."""

    def beats(self) -> list[int]:
        """Return the milliseconds since each thread last went round its loop."""

    def socket_memory(self) -> tuple[int, int]:
        """Return the kernel memory of all sockets towards brokers, and towards clients, as of the last second."""

    def set_tight(self, tight: bool) -> None:
        """Record whether the kernel memory of all sockets is short."""

    def heaviest(self, most: int) -> list[tuple[int, int, int]]:
        """Return those whose sockets hold most: pair, kernel memory, and bytes read in the last second.

        The first are those that stand still: they hold more than they moved.
        """

    def received_memory(self) -> tuple[int, int]:
        """Return the part of the sockets' memory that was received and is not read: from brokers, and from clients."""

    def pool(self) -> tuple[int, int, int, float, int, float] | None:
        """Return the numbers of the relay pool (`limiter.soft_pool.PoolRecord`); None without a limit."""

    def write(self, fd: int, prefix: bytes, pages_fd: int, size: int) -> int:
        """Write a prefix and the first `size` bytes of a file to a socket; returns the body's number.

        Both descriptors stay the caller's. Raises OSError or RuntimeError.
        """

    def end_write(self, body: int) -> None:
        """End the write of a body, with its end still to be told; nothing happens if the body has ended."""

    def written(self, body: int) -> int | None:
        """Return the position of a body; None after its end was told."""

    def close_pages(self, pages_fd: int) -> bool:
        """Close a file in a thread, which frees its pages; returns False if the caller is to close the file."""

    def stop(self) -> None:
        """End all pairs and bodies and join the threads, with the interpreter lock released."""

class CommandTap:
    """The commands of one pair for the log; it outlives the pair."""

    def take(self, most: int) -> list[tuple[int, bytes]]:
        """Return the oldest heads of frames, each with its direction; the next event comes when all were taken."""

    def close(self) -> None:
        """End the tap: nothing is told any more, and nothing is held up for it."""

class SlotBooks:
    """The books of topics by slot, which the threads and Python share."""

    def set_max_pause_millis(self, millis: int) -> None:
        """Change how long a pause for a rate may last before a frame passes: 5 s, far below clients' `sendTimeout`."""

    def debit(self, slot: int, size: int, messages: int, now: float) -> bool:
        """Count messages; return whether the slot has tokens left."""

    def ready_at(self, slot: int, now: float) -> float:
        """Return when a slot that ran dry is ready again; a time not after `now` if it is."""

    def set_rate(
        self, slot: int, bytes_per_second: float | None, messages_per_second: float | None, now: float
    ) -> None:
        """Change the limits of a slot, None for no limit; raises ValueError for a rate that is not above 0."""

    def take(self, slot: int) -> tuple[int, int, bool, int]:
        """Return bytes, messages, whether a limit had no tokens left since the last call, and open producers."""

    def producers(self, slot: int) -> int:
        """Return how many producers of a slot are open, on all connections."""

    def clear(self, slot: int) -> None:
        """Empty a slot without producers: another topic gets it."""

    def hold(self, slot: int) -> None:
        """Count one more producer of the slot."""

    def let_go(self, slot: int) -> None:
        """Count one producer less."""

    def counts(self) -> tuple[int, int, int]:
        """Return what is counted in all: frames that were forced, PRODUCERs not asked for, unreadable connections."""

class TlsConfig:
    """The settings of one side, which sessions that have begun keep; raises ValueError(setting, text)."""

    def __init__(
        self,
        *,
        server_side: bool,
        chain: Sequence[bytes],
        key: bytes,
        roots: Sequence[bytes],
        lists: Sequence[bytes],
        verify: int,
        check_name: bool,
        versions: Sequence[int],
        suites: Sequence[int],
        resumes: bool,
    ) -> None: ...

class TlsSession:
    """One connection's session: ciphertext in, plaintext out, and the other way round."""

    def __init__(self, config: TlsConfig, name: str) -> None:
        """Begin a session, to a broker of that `name`; raises ValueError(kind, text)."""

    @property
    def flags(self) -> int:
        """Return what `receive` has left behind."""

    @property
    def failure(self) -> tuple[str, str] | None:
        """Return the kind and the text of a failure."""

    @property
    def handshaking(self) -> bool:
        """Return whether the handshake is not done."""

    @property
    def kept(self) -> int:
        """Return the bytes that came and were not handed out."""

    @property
    def agreed(self) -> tuple[str, str]:
        """Return the version and the suite, empty before they are known."""

    def receive(self, sealed: _Bytes, room: memoryview) -> int:
        """Open records of `sealed`, behind what is kept, into `room`; return the plain bytes in it."""

    def keep(self, sealed: bytes) -> None:
        """Keep ciphertext for a later `receive`."""

    def take_own(self) -> bytes:
        """Return the records that the session has made by itself."""

    def seal(self, pieces: Sequence[_Bytes]) -> bytes:
        """Return records of these bytes; raises ValueError(kind, text)."""

    def close_notify(self) -> bytes:
        """Return the record that says that this side sends no more; empty if it was said, or cannot be."""

    def peer_certificates(self) -> Sequence[bytes]:
        """Return the peer's certificates as DER, its own first."""
