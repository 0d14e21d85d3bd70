"""The end of a process: what the service manager hears when, and what an undo may still call off."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, cast

import pytest

from proxy.app.lifecycle import Phase, StopSignal
from proxy.app.proxy import Proxy
from proxy.cli.serve import SECONDS_TO_CLOSE, _Ending
from proxy.cli.systemd import ServiceManager
from proxy.web.admin.process_control import NotUndone
from tests.support.configured import configured
from tests.support.log_lines import LogLines
from tests.support.loops.loops import run_virtual

PRE_DRAIN, DRAIN = 5.0, 15.0


class Manager:
    """A service manager that writes down what it hears."""

    def __init__(self) -> None:
        self.heard: list[str] = []

    def stopping(self, status: str, longest_seconds: float) -> None:
        self.heard.append(f"stopping {longest_seconds:g}")

    def status(self, text: str) -> None:
        self.heard.append(text)


class Draining:
    """A proxy with one client, whose drain lasts until the client leaves or the time is over."""

    def __init__(self) -> None:
        self.config = configured()
        self.phase = Phase.SERVING
        self.ready = True
        self.sessions = ["a client"]
        self.left = asyncio.Event()
        self.steps: list[str] = []
        self.behind_the_drain: Callable[[], object] = bool

    def enter(self, phase: Phase, *, ready: bool) -> None:
        self.phase, self.ready = phase, ready

    async def drain(self, seconds: float) -> None:
        self.steps.append("drain")
        try:
            async with asyncio.timeout(seconds):
                await self.left.wait()
                asyncio.get_running_loop().call_soon(self.behind_the_drain)
        except TimeoutError:
            return

    def serve_again(self) -> None:
        self.steps.append("serve again")
        self.enter(Phase.SERVING, ready=True)

    async def close(self, seconds: float) -> None:
        self.steps.append("close")


class Stage:
    """An ending that runs, on virtual time."""

    def __init__(self) -> None:
        self.proxy, self.manager, self.lines = Draining(), Manager(), LogLines()
        self.ending = _Ending(cast(Proxy, self.proxy), self.lines.log, cast(ServiceManager, self.manager))
        self.run = asyncio.get_running_loop().create_task(self.ending.run())

    async def passes(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


def played(scene: Any) -> None:
    async def main() -> None:
        stage = Stage()
        try:
            await cast(Coroutine[Any, Any, None], scene(stage))
        finally:
            stage.run.cancel()
            await asyncio.wait([stage.run])

    run_virtual(main())


def test_of_a_signal_the_manager_hears_at_once_and_of_the_admin_api_when_nothing_can_be_undone() -> None:
    async def by_signal(stage: Stage) -> None:
        stage.ending.signalled(StopSignal.TERMINATE)
        assert stage.manager.heard == [f"stopping {PRE_DRAIN + DRAIN + SECONDS_TO_CLOSE:g}"]
        await stage.run
        assert stage.proxy.steps == ["drain", "close"]
        assert len(stage.manager.heard) == 1

    async def by_admin(stage: Stage) -> None:
        assert stage.ending.begin(StopSignal.TERMINATE) is not None
        await stage.passes(PRE_DRAIN + DRAIN - 1)
        assert stage.manager.heard == ["leaving, as the admin API was asked to"]
        await stage.run
        assert stage.manager.heard[1:] == [f"stopping {SECONDS_TO_CLOSE:g}"]

    played(by_signal)
    played(by_admin)


@pytest.mark.parametrize("seconds", [0.0, 1.0, PRE_DRAIN + 1, PRE_DRAIN + DRAIN - 0.1])
def test_an_undo_at_any_time_of_the_drain_leaves_a_proxy_that_can_be_drained_again(seconds: float) -> None:
    async def scene(stage: Stage) -> None:
        for _ in range(2):
            stage.ending.begin(StopSignal.TERMINATE)
            await stage.passes(seconds)
            stage.ending.undo()
            assert (stage.proxy.phase, stage.proxy.ready) == (Phase.SERVING, True)
            await stage.passes(3600)
            assert not stage.run.done()
        stage.ending.begin(StopSignal.TERMINATE)
        stage.proxy.left.set()
        await stage.run
        assert stage.proxy.steps[-2:] == ["drain", "close"]
        assert len(stage.lines.of("drain undone")) == 2

    played(scene)


def test_an_undo_wins_over_the_last_client_that_leaves_at_the_same_moment() -> None:
    async def scene(stage: Stage) -> None:
        stage.ending.begin(StopSignal.INTERRUPT)
        await stage.passes(1)
        stage.proxy.left.set()
        stage.ending.undo()
        await stage.passes(3600)
        assert not stage.run.done()
        assert stage.proxy.steps == ["drain", "serve again"]

    played(scene)


def test_between_the_end_of_the_drain_and_the_close_it_is_too_late_for_an_undo() -> None:
    async def scene(stage: Stage) -> None:
        def undo() -> None:
            with pytest.raises(NotUndone):
                stage.ending.undo()
            stage.proxy.steps.append("not undone")

        stage.proxy.behind_the_drain = undo
        stage.ending.begin(StopSignal.INTERRUPT)
        stage.proxy.left.set()
        await stage.run
        assert stage.proxy.steps == ["drain", "not undone", "close"]

    played(scene)


def test_a_signal_right_behind_an_undo_is_a_drain_of_its_own() -> None:
    async def scene(stage: Stage) -> None:
        stage.ending.begin(StopSignal.INTERRUPT)
        await stage.passes(1)
        stage.ending.undo()
        stage.ending.signalled(StopSignal.TERMINATE)
        assert stage.proxy.phase is Phase.LEAVING
        await stage.run
        assert stage.proxy.steps == ["drain", "serve again", "drain", "close"]

    played(scene)
