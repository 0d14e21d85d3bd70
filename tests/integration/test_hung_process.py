"""A process whose event loop stands still: a signal shows where, without the admin API, which cannot answer then."""

import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.integration.test_take_over import ROOT, embedded
from tests.support.clients.async_client import eventually
from tests.support.proxies.running_proxy import child_proxy

# The call into C holds the interpreter's lock: no Python code runs until a signal comes.
HUNG = """
import ctypes
from proxy.cli.serve import show_stacks_on_signals

def stands_still():
    pause = ctypes.PyDLL(None).pause
    print("stands", flush=True)
    while True:
        pause()

show_stacks_on_signals()
stands_still()
"""


def hung() -> "subprocess.Popen[str]":
    process = subprocess.Popen(
        [sys.executable, "-c", HUNG], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "stands\n"
    return process


def test_a_process_that_stands_still_shows_where_and_goes_on() -> None:
    with hung() as process:
        try:
            process.send_signal(signal.SIGQUIT)
            assert process.stderr is not None
            assert any("in stands_still" in line for line in iter(process.stderr.readline, ""))
            assert process.poll() is None
        finally:
            process.kill()


def test_a_watchdog_that_ends_it_leaves_the_place_in_the_log() -> None:
    with hung() as process:
        process.send_signal(signal.SIGABRT)
        _, error = process.communicate()
        assert "in stands_still" in error
        assert process.returncode == -signal.SIGABRT


async def test_a_proxy_that_serves_shows_its_threads_and_serves_on(tmp_path: Path) -> None:
    async with embedded() as broker, child_proxy(tmp_path, broker) as proxy:
        os.kill(proxy.child.pid, signal.SIGQUIT)
        await eventually(lambda: '/proxy/cli/serve.py", line ' in proxy.log.read_text(), "the stacks of all threads")
        await (await proxy.connected()).ping()
        assert proxy.said("stopping") == 0
