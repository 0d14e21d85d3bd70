"""A profile on demand: what it sees, what it costs at most, and that it is made once at a time."""

import errno
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import pytest

from proxy.core import threads
from proxy.core.threads import NoThread
from proxy.web.admin import profile
from proxy.web.admin.listener import ADMIN_CLIENT_BYTES
from proxy.web.admin.profile import MOST_CALLS, MOST_STACKS, Profiler, sample
from tests.support.patience import patient

LOOKS = 20


def looks(count: int) -> tuple[Callable[[], float], threading.Event]:
    """Give a clock and an event that let a profile look `count` times, and wait for nothing."""
    moments = iter([0.0, *(index * 0.5 for index in range(count)), *([count * 10.0] * 10)])
    stop = threading.Event()
    stop.wait = lambda timeout=None: False  # type: ignore[method-assign]
    return lambda: next(moments), stop


def deep(calls: int, there: threading.Event, gate: threading.Event) -> None:
    if calls:
        deep(calls - 1, there, gate)
    else:
        there.set()
        gate.wait()


@contextmanager
def waiting(name: str, calls: int = 1) -> Iterator[None]:
    """Run a thread that waits in `deep`."""
    there, gate = threading.Event(), threading.Event()
    thread = threading.Thread(target=deep, args=(calls, there, gate), name=name)
    thread.start()
    try:
        assert there.wait(patient(30))
        yield
    finally:
        gate.set()
        thread.join()


def sampled(count: int = LOOKS, **more: Any) -> Any:
    """Take a profile from another thread, as the proxy does."""
    found: list[Any] = []
    clock, stop = looks(count)
    thread = threading.Thread(target=lambda: found.append(sample(count / 2, stop, clock, **more)))
    thread.start()
    thread.join(patient(30))
    return found[0]


@pytest.mark.threat("endless-profiles")
def test_stacks_and_calls_are_bounded_and_the_rest_is_counted() -> None:
    with waiting("deep", 300), waiting("other"):
        document = sampled(most_stacks=1)
    assert len(document["stacks"]) == 1
    assert document["left_out"] > 0
    with waiting("deep", 300):
        stacks = sampled()["stacks"]
    assert max(len(stack["calls"]) for stack in stacks) == MOST_CALLS
    # References to calls, twice, for all stacks: less than an admin client may take.
    assert 2 * 8 * MOST_STACKS * MOST_CALLS < ADMIN_CLIENT_BYTES


@pytest.mark.parametrize(
    ("module", "step", "error"),
    [
        (threads, "start_thread", NoThread(errno.EAGAIN, "no thread can be started")),
        (profile, "sample", OSError("no frames today")),
    ],
)
async def test_a_failure_of_a_profile_is_that_of_its_request_and_frees_the_place(
    module: ModuleType, step: str, error: OSError, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise error

    profiler = Profiler()
    with monkeypatch.context() as patch:
        patch.setattr(module, step, fails)
        with pytest.raises(type(error), match=error.strerror or "no frames today"):
            await profiler.profile(1.0)
    monkeypatch.setattr(profile, "sample", lambda seconds, stop: {"seconds": seconds})
    assert await profiler.profile(2.0) == {"seconds": 2.0}
