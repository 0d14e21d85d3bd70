"""The cost of TLS: this proxy's transport beside uvloop's own, in the same run, by processor time of the server.

A server process for each of the two takes turns with the other; the client process is the same for both. Ratios above 1
say that this proxy's is faster. Run: `python -m benchmarks.bench_tls [--seconds S] [--quick]`.
"""

import asyncio
import gc
import json
import os
import ssl
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final, NamedTuple, cast

import trustme
import uvloop

from benchmarks.micro import options, print_figures
from proxy.core.loop_budget import LoopBudget
from proxy.net.tls.failures import TlsFailed
from proxy.net.tls.shared import TlsShared
from proxy.net.tls.transport import TlsTransport

KINDS: Final = ("ours", "uvloop")
# Processor time is counted in steps of this: none of it at all is less than a step.
CLOCK_SECONDS: Final = 1e-6
ECHO_CONNECTIONS, ECHO_BYTES = 50, 1024
SINK_CONNECTIONS, SINK_BYTES = 4, 128 * 1024
_PLACE: Final = memoryview(bytearray(256 * 1024))


class Size(NamedTuple):
    """How much is measured: seconds of a round, rounds, connections at rest, and what each echoes before it rests."""

    seconds: float = 2.0
    rounds: int = 7
    idle_connections: int = 1000
    talks_bytes: tuple[int, ...] = (0, 64 * 1024)


QUICK: Final = Size(0.05, 1, 20, (64 * 1024,))


class Echo(asyncio.BufferedProtocol):
    """Send back what came; what begins with an S is only counted."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.transport.set_write_buffer_limits(high=0)

    def get_buffer(self, sizehint: int) -> memoryview:
        return _PLACE

    def buffer_updated(self, nbytes: int) -> None:
        if _PLACE[0] != ord("S"):
            self.transport.write(bytes(_PLACE[:nbytes]))


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def serve(kind: str, directory: Path) -> None:
    """Serve until standard input ends, and write processor time and memory for each line that comes."""
    loop = asyncio.get_running_loop()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(directory / "server.pem")
    context.num_tickets = 1
    shared = TlsShared(LoopBudget(loop, time.perf_counter), 256 * 1024)

    def failed(failure: TlsFailed) -> None:
        print(failure, file=sys.stderr)

    def ours() -> TlsTransport:
        return TlsTransport(shared, context, Echo, failed, server_side=True)

    if kind == "ours":
        server = await loop.create_server(ours, "127.0.0.1", 0, backlog=4096)
    else:
        server = await loop.create_server(Echo, "127.0.0.1", 0, ssl=context, backlog=4096)
    print(server.sockets[0].getsockname()[1], flush=True)
    while await loop.run_in_executor(None, sys.stdin.readline):
        gc.collect()
        used = time.process_time()
        print(json.dumps({"cpu": used, "rss": resident_bytes()}), flush=True)
    server.close()


class Server:
    """A server process, of which there are two."""

    def __init__(self, kind: str, directory: Path) -> None:
        command = [sys.executable, "-m", "benchmarks.bench_tls", "serve", kind, str(directory)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self.port = int(self._process.stdout.readline())

    def reading(self) -> dict[str, float]:
        """Return the server's processor seconds and resident bytes so far."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return cast(dict[str, float], json.loads(self._process.stdout.readline()))

    def end(self) -> None:
        """End the server by closing its standard input, and wait for it."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(10)


class Pinger(asyncio.Protocol):
    """Send a message, and the next one whenever all of it has come back."""

    def __init__(self, size: int, came_back: asyncio.Event) -> None:
        self._message = bytes(size)
        self._came_back = came_back
        self._back = 0
        self.count = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.transport.write(self._message)

    def data_received(self, data: bytes) -> None:
        self._back += len(data)
        if self._back >= len(self._message):
            self._back = 0
            self.count += 1
            self._came_back.set()
            self.transport.write(self._message)


async def echo(port: int, trust: ssl.SSLContext, seconds: float) -> float:
    """Count round trips of many connections: of the given time, or of as much more as the first of them takes."""
    loop = asyncio.get_running_loop()
    came_back = asyncio.Event()
    pairs = [
        await loop.create_connection(
            lambda: Pinger(ECHO_BYTES, came_back), "127.0.0.1", port, ssl=trust, server_hostname="localhost"
        )
        for _ in range(ECHO_CONNECTIONS)
    ]
    await asyncio.sleep(seconds)
    # A busy machine may need all of this time for the handshakes: a ratio of no round trips says nothing.
    await came_back.wait()
    for transport, _ in pairs:
        transport.abort()
    await asyncio.sleep(0.1)
    return float(sum(pinger.count for _, pinger in pairs))


async def sink(port: int, trust: ssl.SSLContext, seconds: float) -> float:
    """Count messages that the server takes of a few connections."""
    piece, count = b"S" * SINK_BYTES, 0
    writers = [
        (await asyncio.open_connection("127.0.0.1", port, ssl=trust, server_hostname="localhost"))[1]
        for _ in range(SINK_CONNECTIONS)
    ]
    # Not from before the handshakes: on a busy machine these take all of the time.
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        for writer in writers:
            writer.write(piece)
            count += 1
        await asyncio.gather(*(writer.drain() for writer in writers))
    for writer in writers:
        writer.transport.abort()
    await asyncio.sleep(0.1)
    return float(count)


async def idle(port: int, trust: ssl.SSLContext, count: int, talk_bytes: int) -> list[Any]:
    """Open connections that do nothing more after an echo of so many bytes."""
    kept = []
    for _ in range(count):
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", port, ssl=trust, server_hostname="localhost", limit=2**20
        )
        if talk_bytes:
            writer.write(bytes(talk_bytes))
            await reader.readexactly(talk_bytes)
        kept.append(writer)
    return kept


def measure(directory: Path, size: Size) -> dict[str, Any]:
    """Run everything and give the numbers."""
    trust = ssl.create_default_context(cafile=str(directory / "ca.pem"))
    results: dict[str, Any] = {}
    servers = {kind: Server(kind, directory) for kind in KINDS}
    try:
        for name, drive in (("echo 1 KiB x 50", echo), ("sink 128 KiB x 4", sink)):
            per_second: dict[str, list[float]] = {kind: [] for kind in KINDS}
            for number in range(size.rounds):
                for kind in KINDS[:: 1 if number % 2 else -1]:
                    before = servers[kind].reading()["cpu"]
                    count = uvloop.run(drive(servers[kind].port, trust, size.seconds))
                    per_second[kind].append(count / max(servers[kind].reading()["cpu"] - before, CLOCK_SECONDS))
            ratios = [ours / other for ours, other in zip(per_second["ours"], per_second["uvloop"], strict=True)]
            results[name] = {
                **{f"{kind}_per_cpu_second": round(statistics.median(per_second[kind])) for kind in KINDS},
                "ratio": round(statistics.median(ratios), 2),
            }
    finally:
        for server in servers.values():
            server.end()
    for talk_bytes in size.talks_bytes:
        results[f"idle, after an echo of {talk_bytes} bytes"] = {
            f"{kind}_bytes_each": _idle_price(kind, directory, trust, size.idle_connections, talk_bytes)
            for kind in KINDS
        }
    return results


def _idle_price(kind: str, directory: Path, trust: ssl.SSLContext, count: int, talk_bytes: int) -> int:
    server = Server(kind, directory)

    async def grow() -> int:
        first = await idle(server.port, trust, count, talk_bytes)
        before = server.reading()["rss"]
        second = await idle(server.port, trust, count, talk_bytes)
        each = (server.reading()["rss"] - before) / len(second)
        for writer in first + second:
            writer.transport.abort()
        await asyncio.sleep(0.1)
        return round(each)

    try:
        return uvloop.run(grow())
    finally:
        server.end()


def main() -> None:
    """Measure, or be one of the servers."""
    if sys.argv[1:2] == ["serve"]:
        uvloop.run(serve(sys.argv[2], Path(sys.argv[3])))
        return
    arguments = options(__doc__)
    arguments.add_argument("--seconds", type=float, default=Size().seconds, help="of each round")
    chosen = arguments.parse_args()
    size = QUICK if chosen.quick else Size(chosen.seconds)
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        authority = trustme.CA()
        certificate = authority.issue_cert("localhost", key_type=trustme.KeyType.RSA)
        certificate.private_key_and_cert_chain_pem.write_to_path(str(directory / "server.pem"))
        authority.cert_pem.write_to_path(str(directory / "ca.pem"))
        print_figures(measure(directory, size))


if __name__ == "__main__":
    main()
