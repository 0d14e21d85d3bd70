"""Calls in threads, and a process that may start no more of them."""

import errno
import threading

import pytest

from proxy.core.threads import MOST_OF_A_NAME, NoThread, in_thread, start_thread


class NoMore:
    """Threads that cannot be started, as often as a test wants."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, times: int) -> None:
        self.left = times
        start = threading.Thread.start

        def refused(thread: threading.Thread) -> None:
            if self.left:
                self.left -= 1
                raise RuntimeError("can't start new thread")
            start(thread)

        monkeypatch.setattr(threading.Thread, "start", refused)


async def test_a_call_without_a_thread_is_an_error_of_the_machine_and_the_next_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    NoMore(monkeypatch, 1)
    with pytest.raises(NoThread, match="no thread can be started") as none:
        await in_thread(lambda: 1, "test", None)
    assert none.value.errno == errno.EAGAIN
    assert await in_thread(lambda: 1, "test", None) == 1


async def test_a_disk_that_hangs_keeps_a_bounded_number_of_threads_and_only_those_of_its_name() -> None:
    answers, before = threading.Event(), threading.active_count()
    try:
        for _ in range(MOST_OF_A_NAME):
            with pytest.raises(TimeoutError):
                await in_thread(answers.wait, "hangs", 0)
        with pytest.raises(TimeoutError, match="have not come back"):
            await in_thread(answers.wait, "hangs", 0)
        assert threading.active_count() == before + MOST_OF_A_NAME
        assert await in_thread(lambda: 1, "test", 60) == 1
    finally:
        answers.set()
        for thread in threading.enumerate():
            if thread.name == "hangs":
                thread.join()
    assert await in_thread(lambda: 1, "hangs", 60) == 1


def test_a_thread_that_nobody_waits_for_says_when_it_cannot_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    NoMore(monkeypatch, 1)
    with pytest.raises(NoThread):
        start_thread(lambda: None, "test")
