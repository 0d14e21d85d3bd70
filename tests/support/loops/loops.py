"""Own the event loops that tests run on: both real ones, and one whose time jumps as soon as nothing can happen.

The virtual loop waits for real sockets, never for a clock: a 30 s timeout takes no time. If nothing can ever happen
it raises instead of hanging.
"""

import asyncio
import inspect
import selectors
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

import pytest
import uvloop

from tests.support.patience import patient

P = ParamSpec("P")
T = TypeVar("T")
Given = ParamSpec("Given")
Rest = ParamSpec("Rest")
LoopFactory = Callable[[], asyncio.AbstractEventLoop]

both_loops = pytest.mark.parametrize(
    "loop_factory", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"]
)

# What loopback needs to show an event; more only makes tests slower.
_GRACE_SECONDS = 0.002
_DEADLOCK_SECONDS = 5.0
_EVENT_SECONDS = 5.0


class _JumpingSelector(selectors.DefaultSelector):
    """Let time pass only when no socket is ready."""

    def __init__(self, grace_seconds: float) -> None:
        super().__init__()
        self.now = 1000.0
        self._grace_seconds = patient(grace_seconds)

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(self._grace_seconds if timeout else timeout and 0)
        if ready or timeout == 0:
            return ready
        if timeout is None:
            # Only a socket or a thread (name resolution) can go on now.
            ready = super().select(patient(_DEADLOCK_SECONDS))
            assert ready, "deadlock: nothing is scheduled and no socket is ready"
            return ready
        self.now += max(timeout, 0.0)
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """Run on real sockets in virtual time."""

    def __init__(self, grace_seconds: float = _GRACE_SECONDS) -> None:
        self._selector_in_use = _JumpingSelector(grace_seconds)
        super().__init__(self._selector_in_use)

    def time(self) -> float:
        return self._selector_in_use.now

    def stand_still(self, seconds: float) -> None:
        """Let time pass in the middle of a step, as a step that takes long does."""
        self._selector_in_use.now += seconds


def run_on(loop_factory: LoopFactory, main: Coroutine[Any, Any, T]) -> T:
    """Run `main` to its end; an exception that nobody took fails the test."""
    lost: list[dict[str, Any]] = []
    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.get_loop().set_exception_handler(lambda _, context: lost.append(context))
        result = runner.run(main)
    assert not lost, f"exceptions that nobody took: {lost}"
    return result


def run_virtual(main: Coroutine[Any, Any, T]) -> T:
    """Run `main` in virtual time."""
    return run_on(VirtualLoop, main)


def virtual(play: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Have a test run in virtual time."""

    @wraps(play)
    def test(*args: P.args, **kwargs: P.kwargs) -> None:
        run_virtual(play(*args, **kwargs))

    return test


def virtually(
    made: Callable[Given, AbstractAsyncContextManager[T]], *given: Given.args, **more: Given.kwargs
) -> Callable[[Callable[Concatenate[T, Rest], Awaitable[None]]], Callable[Rest, None]]:
    """Run a test in virtual time, with what `made` gives as its first argument."""

    def decorated(body: Callable[Concatenate[T, Rest], Awaitable[None]]) -> Callable[Rest, None]:
        @wraps(body)
        def test(*arguments: Rest.args, **named: Rest.kwargs) -> None:
            async def main() -> None:
                async with made(*given, **more) as rig:
                    await body(rig, *arguments, **named)

            run_virtual(main())

        # What pytest fills in is all but the rig.
        _, *filled = inspect.signature(body).parameters.values()
        vars(test).update(__signature__=inspect.Signature(filled))
        del vars(test)["__wrapped__"]
        return test

    return decorated


def run_without_sockets(main: Coroutine[Any, Any, T]) -> T:
    """Run `main`, which uses no socket, in virtual time: hours of it take moments."""
    return run_on(lambda: VirtualLoop(0.0), main)


async def most_in_an_iteration(count: Callable[[], int], goal: int) -> int:
    """Run the loop until a count is `goal`; return by how much the count grew at most in an iteration."""
    most, before = 0, count()
    for _ in range(100 * goal):
        await asyncio.sleep(0)
        before, grown = count(), count() - before
        most = max(most, grown)
        if before == goal:
            return most
    raise AssertionError(f"expected {goal}, got {before}")


async def eventually(condition: Callable[[], object], what: str = "condition") -> None:
    """Wait until `condition` holds; only for real loops, where the kernel decides when."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    while not condition():
        waited = loop.time() - began
        assert waited < _EVENT_SECONDS or waited < patient(_EVENT_SECONDS), f"expected within {waited:.0f} s: {what}"
        await asyncio.sleep(0.001)
