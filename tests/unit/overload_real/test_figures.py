"""The arithmetic of the real scenario of overload control: memory beside its line, cycles, what `ss` prints."""

import subprocess
from typing import Any

import pytest

from benchmarks.overload_real import samples
from benchmarks.overload_real.runs import cycles_of, memory_of
from benchmarks.overload_real.samples import Sample
from benchmarks.overload_real.scene import MIB, Size

SS = """\
ESTAB 0 0 127.0.0.1:6650 127.0.0.1:4001 users:(("python",pid=77,fd=9)) skmem:(r100,rb131072,t7,tb9,f20,w3,o5,bl4000,d1)
ESTAB 0 0 127.0.0.1:4001 127.0.0.1:6650 users:(("java",pid=78,fd=9)) skmem:(r9,rb131072,t7,tb9,f9,w9,o9,bl9,d1)
LISTEN 0 0 127.0.0.1:6650 *:* users:(("python",pid=77,fd=3)) skmem:(r0,rb131072,t0,tb16384,f0,w0,o0,bl0,d0)
"""


def event(action: str, connections: int = 1) -> dict[str, Any]:
    return {"throttle_action": action, "throttle_connections": connections}


def test_memory_of_sockets_is_that_of_one_process_as_the_kernel_counts_it(monkeypatch: pytest.MonkeyPatch) -> None:
    class Done:
        stdout = SS

    monkeypatch.setattr(subprocess, "run", lambda *_, **__: Done)
    assert samples.socket_bytes(77) == 100 + 20 + 3 + 4000
    assert samples.socket_bytes(7) == 0


def test_line_is_the_high_mark_and_what_comes_meanwhile_and_a_buffer_for_each_that_is_paused() -> None:
    seen = [Sample(0.0, 10 * MIB, 5 * MIB, 0, 9), Sample(1.0, 80 * MIB, 20 * MIB, 3, 11), Sample(2.0, MIB, 0, 2, 10)]
    found = memory_of(seen, Size(limit_mib=100), 4e6)
    assert found["peak_bytes"] == 100 * MIB
    assert found["line_bytes"] == 85 * MIB + 2_000_000 + 3 * 2 * MIB
    assert found["paused_part_of_time"] == pytest.approx(0.667)


def test_cycles_of_a_release_are_the_decisions_after_the_last_pause() -> None:
    made = [event("pause", 9), event("resume"), event("resume"), event("pause"), event("resume"), event("resume", 0)]
    assert cycles_of(made) == {"releases": 2, "cycles_of_last_release": 1, "decisions": 6}
    assert cycles_of([event("pause")]) == {"releases": 0, "cycles_of_last_release": 0, "decisions": 1}
