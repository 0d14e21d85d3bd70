"""The interface of the native relay engine: what Python gives it and gets back."""

import fcntl
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.native.relays import (
    BROKER_CLOSED,
    BY_PYTHON,
    CLIENT_CLOSED,
    DRAINED,
    ENDED,
    FRAMES,
    TO_CLIENT,
    Event,
    Pair,
    Relays,
    received,
    settled,
)
from tests.support.patience import patient
from tests.support.sockets.frames import ping, send, watch_success

RATE = 8


@pytest.mark.parametrize(("first", "cause"), [("client", CLIENT_CLOSED), ("broker", BROKER_CLOSED)])
def test_second_fin_ends_a_pair_for_the_cause_of_the_first(relays: Relays, first: str, cause: int) -> None:
    pair = relays.join()
    one, other = (pair.client, pair.broker) if first == "client" else (pair.broker, pair.client)
    one.sendall(b"bye")
    one.shutdown(socket.SHUT_WR)
    assert received(other, 3) == b"bye"
    assert other.recv(1) == b""
    other.sendall(b"late")
    assert received(one, 4) == b"late"
    other.close()
    to_broker, to_client = (3, 4) if first == "client" else (4, 3)
    assert relays.event() == Event(ENDED, pair.id, cause, 0, to_broker, to_client, 0)


def test_watch_frame_waits_for_its_answer(relays: Relays) -> None:
    pair = relays.join(scan=True)
    before, frame = send(ping()), watch_success(1, ["a", "b"])
    pair.broker.sendall(before + frame)
    asked = relays.event()
    assert asked == Event(FRAMES, pair.id, asked.a, 1, 0, len(frame), 0)
    assert received(pair.client, len(before)) == before
    # The answer to another question is none.
    relays.engine.pass_frames(pair.id, asked.a + 1)
    assert not select.select([relays.engine.event_fd], [], [], 0.03)[0]
    relays.engine.pass_frames(pair.id, asked.a)
    assert relays.event() == Event(DRAINED, pair.id, asked.a, 0, 0, 0, 0)
    assert received(pair.client, len(frame)) == frame


def test_close_and_abort_end_a_pair(relays: Relays) -> None:
    for end in (lambda pair: relays.engine.close(pair, 5_000), relays.engine.abort):
        pair = relays.join()
        end(pair.id)
        assert relays.event()[:3] == (ENDED, pair.id, BY_PYTHON)
        assert pair.client.recv(1) == pair.broker.recv(1) == b""
        end(pair.id)
        assert relays.engine.snapshot_of(pair.id) is None


def has_counted(relays: Relays, pair: Pair, count: int) -> None:
    settled(lambda: relays.engine.snapshot_of(pair.id)[1] >= count)


def test_snapshot_has_a_record_of_the_declared_layout_for_each_pair(extension: Any, relays: Relays) -> None:
    pairs = [relays.join() for _ in range(3)]
    for count, pair in enumerate(pairs, 1):
        pair.client.sendall(b"x" * count)
        received(pair.broker, count)
        # The thread may count them only after their receiver has read them.
        has_counted(relays, pair, count)
        relays.engine.pause(pair.id, TO_CLIENT, RATE)
    layout = struct.Struct(extension.RECORD)
    records = {record[0]: record for record in layout.iter_unpack(relays.engine.snapshot())}
    assert records.keys() == {pair.id for pair in pairs}
    for count, pair in enumerate(pairs, 1):
        record = records[pair.id]
        assert record[1:4] == (count, 0, 1)
        assert record[4:9] == (0, 0, 0, RATE, 0)
        assert record[9] < 60_000
        assert relays.engine.snapshot_of(pair.id)[:9] == record[:9]


def test_event_descriptor_is_readable_while_events_are_left(relays: Relays) -> None:
    pairs = [relays.join() for _ in range(5)]
    for pair in pairs:
        relays.engine.abort(pair.id)
    seen: list[int] = []
    while len(seen) < len(pairs):
        assert select.select([relays.engine.event_fd], [], [], patient(10))[0]
        events = relays.engine.events(2)
        assert len(events) <= 2
        seen += [event[1] for event in events]
    assert sorted(seen) == sorted(pair.id for pair in pairs)
    assert relays.engine.events(10) == []
    assert not select.select([relays.engine.event_fd], [], [], 0)[0]


def test_refused_pair_stays_the_callers(relays: Relays) -> None:
    (near, far), (other, other_far) = socket.socketpair(), socket.socketpair()
    with near, far, other, other_far:
        with pytest.raises(OSError, match="Bad file descriptor") as refused:
            relays.engine.join(near.fileno(), -1, b"", b"", False)
        assert refused.value.errno == 9
        near.sendall(b"mine")
        assert far.recv(4) == b"mine"
        # Nobody watches it any more: it can join with another.
        relays.engine.join(near.detach(), other.detach(), b"", b"", False)
        far.sendall(b"x")
        assert other_far.recv(1) == b"x"
        relays.engine.stop()
        with pytest.raises(RuntimeError, match="stopped"):
            relays.engine.join(far.fileno(), other_far.fileno(), b"", b"", False)
        os.fstat(far.fileno())


def threads_of_the_engine() -> list[Path]:
    return [task for task in Path("/proc/self/task").iterdir() if name_of(task).startswith("relay-")]


def name_of(task: Path) -> str:
    try:
        return (task / "comm").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def test_threads_have_names_block_all_signals_and_are_gone_after_a_stop(relays: Relays) -> None:
    # A thread has its name before it serves its first pair.
    for pair in (relays.join(), relays.join()):
        pair.client.sendall(b"x")
        received(pair.broker, 1)
    # Those of the test before may leave the list a moment after they were joined.
    settled(lambda: len(threads_of_the_engine()) == 2)
    found = threads_of_the_engine()
    assert sorted((task / "comm").read_text().strip() for task in found) == ["relay-0", "relay-1"]
    for task in found:
        lines = dict(line.split(":", 1) for line in (task / "status").read_text().splitlines())
        blocked = int(lines["SigBlk"], 16)
        assert all(blocked >> (number - 1) & 1 for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP))
    assert signal.SIGTERM not in signal.pthread_sigmask(signal.SIG_BLOCK, ())
    relays.engine.stop()
    # The kernel wakes who joins a thread a moment before the thread has left the list.
    settled(lambda: not threads_of_the_engine())
    assert threads_of_the_engine() == []
    relays.engine.stop()


def test_every_descriptor_of_the_engine_is_closed_on_exec(extension: Any) -> None:
    before = set(os.listdir("/proc/self/fd"))
    with Relays(extension, threads=2) as relays:
        made = set(os.listdir("/proc/self/fd")) - before
        assert len(made) >= 5
        for fd in made:
            # The descriptor that listed the directory is gone.
            if os.path.exists(f"/proc/self/fd/{fd}"):
                assert fcntl.fcntl(int(fd), fcntl.F_GETFD) & fcntl.FD_CLOEXEC, os.readlink(f"/proc/self/fd/{fd}")
        pair = relays.join()
        relays.engine.abort(pair.id)
        relays.event()
    del relays, pair
    assert len(set(os.listdir("/proc/self/fd")) - before) <= 1


def test_stop_lets_the_interpreter_run_and_tells_of_every_pair(relays: Relays) -> None:
    pairs = [relays.join() for _ in range(20)]
    ran = threading.Event()
    other = threading.Thread(target=ran.set)
    other.start()
    relays.engine.stop()
    other.join()
    assert ran.is_set()
    assert sorted(relays.event().pair for _ in pairs) == sorted(pair.id for pair in pairs)


LEAVES = """
import os, socket, sys
from proxy.core.native import native
engine = native().module.RelayEngine(2, 65536, (10_000, 300_000))
near = [socket.socketpair() for _ in range(2)]
for pair in near:
    pair[0].setblocking(False)
engine.join(near[0][0].detach(), near[1][0].detach(), b"", b"", False)
if sys.argv[1] == "fork" and not os.fork():
    engine.stop()
    del engine
    os._exit(0)
if sys.argv[1] == "fork":
    assert os.wait()[1] == 0
    near[0][1].sendall(b"alive")
    assert near[1][1].recv(5) == b"alive"
if sys.argv[1] == "delete":
    del engine
    assert near[0][1].recv(1) == b""
"""


@pytest.mark.parametrize("how", ["exit", "delete", "fork"])
def test_process_ends_with_an_engine_that_nobody_stopped(extension: Any, how: str) -> None:
    command = [sys.executable, "-c", LEAVES, how]
    done = subprocess.run(command, capture_output=True, text=True, timeout=patient(60), check=False)
    assert (done.returncode, done.stderr) == (0, "")


BULK = """
import os, resource, socket, sys, threading
from proxy.core.native import native
engine = native().module.RelayEngine(1, 65536, (10_000, 300_000))
listening = socket.create_server(("127.0.0.1", 0))
far = [socket.create_connection(listening.getsockname()) for _ in range(2)]
near = [listening.accept()[0] for _ in range(2)]
for end in near:
    end.setblocking(False)
pair = engine.join(near[0].detach(), near[1].detach(), b"", b"", False)
if sys.argv[1] == "scarce":
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (listening.fileno() + 100, hard))
    try:
        while True:
            os.dup(0)
    except OSError:
        pass
sent = os.urandom(1 << 20) * 16
threading.Thread(target=far[1].sendall, args=(sent,)).start()
received = bytearray()
while len(received) < len(sent):
    received += far[0].recv(1 << 20)
assert received == sent
print(engine.snapshot_of(pair)[12])
"""


@pytest.mark.parametrize("descriptors", ["plenty", "scarce"])
def test_bulk_is_copied_where_there_is_no_descriptor_for_a_pipe(extension: Any, descriptors: str) -> None:
    command = [sys.executable, "-c", BULK, descriptors]
    done = subprocess.run(command, capture_output=True, text=True, timeout=patient(60), check=False)
    assert done.returncode == 0, done.stderr
    assert (int(done.stdout) > 0) == (descriptors == "plenty")
