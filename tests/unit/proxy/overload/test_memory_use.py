"""Memory signals: the kernel's files, what is counted, and signals that fail (Q1, Q4, Q11)."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from proxy.core.process_memory import MemoryPaths
from proxy.overload.machine_memory import (
    MachineMemory,
    allocator_free_bytes,
    stall_percent,
)
from proxy.overload.samples import Marks, MemoryMonitor, MemorySample, OwnerBytes, Signals, counted_bytes
from tests.support.patience import patient

MARKS = Marks(0.85, 0.75)
MEMINFO = "MemTotal:  1000 kB\nMemFree: 10 kB\nMemAvailable: 400 kB\n"
SAMPLE = MemorySample("cgroup v2", 900, 1000)
# All memory is on its way to brokers.
PRODUCERS = OwnerBytes(towards_brokers=1 << 60)


def files(root: Path, **texts: str) -> MemoryPaths:
    """Write files; in a name `__` is a slash and `_dot_` a dot."""
    for name, text in texts.items():
        path = root / name.replace("__", "/").replace("_dot_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return MemoryPaths(process=root / "proc/self", cgroups=root / "cgroup")


def machine(found: MemoryPaths, *, is_sidecar: bool = False, sockets: int = 0, free: int = 0) -> MachineMemory:
    return MachineMemory(is_sidecar=is_sidecar, socket_bytes=lambda: sockets, paths=found, counted_free=lambda: free)


V2 = {
    "proc__self__cgroup": "0::/pod/app\n",
    "cgroup__pod__app__memory_dot_stat": "anon 300\nfile 5000\nsock 40\nkernel 7\n",
    "cgroup__pod__app__memory_dot_max": "1000\n",
}


def test_q1_page_cache_is_not_counted(tmp_path: Path) -> None:
    sample = machine(files(tmp_path, **V2)).look()
    assert (sample.source, sample.used_bytes, sample.limit_bytes) == ("cgroup v2", 340, 1000)


def test_smallest_limit_upwards_counts_with_the_memory_of_its_own_group(tmp_path: Path) -> None:
    above = {"cgroup__pod__memory_dot_max": "600\n", "cgroup__pod__memory_dot_stat": "anon 500\n"}
    sample = machine(files(tmp_path, **V2, **above)).look()
    assert (sample.used_bytes, sample.limit_bytes) == (500, 600)


def test_q4_cgroup_v1_charges_no_sockets_so_ours_are_added(tmp_path: Path) -> None:
    found = files(
        tmp_path,
        proc__self__cgroup="9:memory:/app\n",
        cgroup__memory__app__memory_dot_stat="cache 900\ntotal_rss 300\n",
        cgroup__memory__app__memory_dot_limit_in_bytes="1000\n",
    )
    sample = machine(found, sockets=50).look()
    assert (sample.source, sample.used_bytes) == ("cgroup v1", 350)


def test_q4_without_a_limit_the_machine_is_watched(tmp_path: Path) -> None:
    found = files(tmp_path, proc__self__cgroup="0::/\n", proc__meminfo=MEMINFO)
    sample = machine(found).look()
    assert (sample.source, sample.used_bytes, sample.limit_bytes) == ("machine", 600 * 1024, 1000 * 1024)


def test_q5_sidecar_without_a_group_of_its_own_watches_its_own_process(tmp_path: Path) -> None:
    page = os.sysconf("SC_PAGE_SIZE")
    found = files(tmp_path, proc__self__cgroup="0::/\n", proc__meminfo=MEMINFO, proc__self__statm="90 30 10 1 0 1 0\n")
    sample = machine(found, is_sidecar=True, sockets=5).look()
    assert (sample.source, sample.used_bytes, sample.limit_bytes) == ("process", 20 * page + 5, 1000 * 1024)


@pytest.mark.parametrize(("others", "source"), [("", "cgroup v2"), ("999999\n", "process")])
def test_q5_sidecar_in_a_shared_group_watches_its_own_process(tmp_path: Path, others: str, source: str) -> None:
    found = files(
        tmp_path, **V2, proc__self__statm="90 30 10 1 0 1 0\n",
        cgroup__pod__app__cgroup_dot_procs=f"{os.getpid()}\n{os.getppid()}\n{others}",
    )  # fmt: skip
    assert machine(found, is_sidecar=True).look().source == source


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("some avg10=12.50 avg60=1.00 avg300=0.00 total=5\nfull avg10=1.00\n", 12.5),
        ("full avg10=1.00\n", None),
        ("some avg10=many\n", None),
        ("", None),
        (None, None),
    ],
)
def test_stall_information_may_be_missing_or_anything(text: str | None, expected: float | None) -> None:
    assert stall_percent(text) == expected


def test_cgroup_file_that_vanishes_is_an_error_with_its_name(tmp_path: Path) -> None:
    found = files(tmp_path, **V2)
    (tmp_path / "cgroup/pod/app/memory.stat").unlink()
    with pytest.raises(ValueError, match=r"memory\.stat: got no number"):
        machine(found).look()


def test_limit_that_vanishes_is_an_error_and_one_that_is_lifted_is_not(tmp_path: Path) -> None:
    own = machine(files(tmp_path, **V2, proc__meminfo=MEMINFO))
    assert own.look().source == "cgroup v2"
    limit = tmp_path / "cgroup/pod/app/memory.max"
    limit.write_text("max\n")
    assert own.look().source == "machine"
    limit.unlink()
    with pytest.raises(ValueError, match="the limit of the cgroup is gone"):
        own.look()


def test_this_machine_can_be_read() -> None:
    sample = MachineMemory(is_sidecar=False, socket_bytes=lambda: 0).look()
    assert sample.used_bytes > 0
    assert sample.limit_bytes > 0
    assert allocator_free_bytes() >= 0


# The signal and the throttle behind it, in a process of their own: the heap of one that has run many tests is full of
# holes. Small pieces stay with the allocator when they are freed, unless they are told apart or given back.
HOLDS_AND_RELEASES = """
import os, sys
from pathlib import Path
from proxy.core.process_memory import MemoryPaths
from proxy.overload.machine_memory import MachineMemory
from proxy.overload.samples import Marks, MemoryMonitor, OwnerBytes
from proxy.overload.threshold import RelaySample, ThresholdSettings, ThresholdThrottle

root = Path(sys.argv[1])
meminfo = root / "proc/meminfo"
paths = MemoryPaths(process=root / "proc/self", cgroups=root / "cgroup")
own = MachineMemory(is_sidecar=True, socket_bytes=lambda: 0, paths=paths)
marks = Marks(0.85, 0.75)
monitor = MemoryMonitor(marks)
throttle = ThresholdThrottle(ThresholdSettings(marks, 5.0, 20.0, 1, True, False), lambda count: 0)
relay, now = RelaySample(1, False, 0), 0.0
sample = own.look()
size = 48 << 20
limit = int((sample.used_bytes + size) / 0.9)
meminfo.write_text(f"MemTotal: {limit >> 10} kB\\nMemAvailable: 9 kB\\n")

def look():
    global now
    now += 0.5
    signals = monitor.take(own.look(), OwnerBytes(towards_brokers=1 << 60))
    if monitor.trim_is_due(signals.ratio):
        own.give_back()
    for _ in throttle.steps(throttle.begun(), now, signals.ratio, signals.limit_bytes, [relay]):
        pass
    return len(throttle)

found = [look()]
held = [os.urandom(1 << 12) for _ in range(size >> 12)]
found += [look(), look()]
del held
found += [look(), look(), str(throttle.state)]
print(*found)
"""


def test_q3_throttle_holds_while_memory_of_this_process_is_used_and_releases_when_it_is_freed(tmp_path: Path) -> None:
    files(tmp_path, proc__meminfo="MemTotal: 9000000 kB\nMemAvailable: 9 kB\n")
    (tmp_path / "cgroup").mkdir()
    (tmp_path / "proc/self").symlink_to("/proc/self")
    command = [sys.executable, "-c", HOLDS_AND_RELEASES, str(tmp_path)]
    finished = subprocess.run(command, capture_output=True, timeout=patient(60), check=True, text=True)
    assert finished.stdout.split() == ["0", "1", "1", "0", "0", "normal"]


def test_pages_given_back_to_the_system_are_taken_off_once(tmp_path: Path) -> None:
    free = 100
    own = MachineMemory(
        is_sidecar=False, socket_bytes=lambda: 0, paths=files(tmp_path, **V2), counted_free=lambda: free
    )
    assert own.look().used_bytes == 240
    free = 90
    own.give_back()
    assert own.look().used_bytes == 340
    # 60 bytes were used again and freed: they are resident.
    free = 30
    assert own.look().used_bytes == 340
    free = 90
    assert own.look().used_bytes == 280


# --- what is counted -----------------------------------------------------------------------------


def test_what_paused_producers_have_sent_cannot_keep_them_paused() -> None:
    unread = OwnerBytes(towards_brokers=0, unread=900)
    assert counted_bytes(900, 1000, unread, MARKS) == 700
    assert counted_bytes(900, 1000, unread._replace(towards_brokers=200), MARKS) == 900


def test_with_a_lot_held_by_others_producers_keep_a_share_before_they_are_paused() -> None:
    held = [brokers for brokers in range(0, 300, 10) if counted_bytes(800 + brokers, 1000,
            OwnerBytes(towards_brokers=brokers, towards_clients=800), MARKS) >= 850]  # fmt: skip
    assert held[0] == 150


def test_what_the_allocator_holds_free_is_not_in_use(tmp_path: Path) -> None:
    assert machine(files(tmp_path, **V2), free=150).look().used_bytes == 190


@pytest.mark.parametrize(("stall", "used", "ratio"), [(50.0, 800, 0.85), (50.0, 700, 0.7), (5.0, 800, 0.8)])
def test_stalls_raise_the_ratio_but_never_alone(stall: float, used: int, ratio: float) -> None:
    sample = SAMPLE._replace(used_bytes=used, stall_percent=stall)
    assert MemoryMonitor(MARKS).take(sample, PRODUCERS).proxy_ratio == ratio


def test_memory_high_that_slows_the_group_down_counts_as_the_high_mark() -> None:
    monitor, sample = MemoryMonitor(MARKS), SAMPLE._replace(used_bytes=500, high_events=7)
    assert [monitor.take(sample._replace(high_events=events), PRODUCERS).proxy_ratio for events in (7, 8, 8)] == [
        0.5, 0.85, 0.5,
    ]  # fmt: skip


def test_allocator_is_trimmed_once_for_each_crossing() -> None:
    monitor, found = MemoryMonitor(MARKS), []
    for used in (700, 860, 900, 800, 860, 740, 850):
        found.append(monitor.trim_is_due(used / 1000))
    assert found == [False, True, False, False, False, False, True]


def test_signals_that_are_not_known_have_no_ratio() -> None:
    found = Signals()
    assert found.ratio is None
    assert found._replace(broker_ratio=0.5).ratio == 0.5
