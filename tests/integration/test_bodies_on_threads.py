"""Lists that many clients share, written by the loop or by the native engine's threads: who reads gets all, who does
not is closed by the same rules, and nothing is left of either. More of the contract: test_shared_lists.py."""

import errno
from collections import Counter
from typing import Any, cast

import pytest

from tests.integration.test_slow_readers import LONG_LIST, was_reset
from tests.support.proxies.proxy_under_test import MIB, staged
from tests.support.proxies.shared_lists import all_have_lists, being_written, has_list
from tests.support.sockets.descriptors import targets
from tests.support.tools import native_extension


def of_lists() -> list[str]:
    """Return what descriptors of lists are: files of pages, and sockets that have more than one."""
    found = targets()
    twice = [target for target, count in Counter(found).items() if count > 1 and target.startswith("socket:")]
    return twice + [target for target in found if "topic-list" in target]


@pytest.mark.threat("reset-while-list-written")
async def test_clients_that_leave_in_the_middle_leave_no_descriptor() -> None:
    async with staged() as stage:
        for _ in range(5):
            members = await being_written(stage)
            assert of_lists()
            for member in members:
                member.reset()
            for client in list(stage.clients):
                client.close()
            await stage.until(stage.settled, "nothing left")
        await stage.until(lambda: not of_lists(), "all descriptors closed")


class Refusing:
    """The engine's threads, which take no body."""

    def __init__(self, threads: Any) -> None:
        self._threads = threads

    def __getattr__(self, name: str) -> Any:
        return getattr(self._threads, name)

    def write(self, *_: object) -> int:
        raise OSError(errno.EMFILE, "no descriptor")


@pytest.mark.threat("no-descriptor-list-thread")
async def test_without_descriptors_the_loop_writes_and_nobody_notices() -> None:
    native_extension()
    async with staged() as stage:
        engine = stage.proxy.relay_engines.native
        assert engine is not None
        stage.proxy.sockets.pump.threads_started(cast(Any, Refusing(engine.pairs)))
        await all_have_lists(await being_written(stage))


async def test_a_stopped_engine_cuts_the_lists_under_way_and_the_loop_writes_the_next() -> None:
    native_extension()
    async with staged(**LONG_LIST) as stage:
        engine = stage.proxy.relay_engines.native
        assert engine is not None
        members = await being_written(stage)
        await engine.stop()
        for member in members:
            assert await was_reset(member)
        await stage.until(lambda: not stage.direct.held, "all given back")
        for member in await being_written(stage):
            await has_list(member)
        assert stage.direct.statistics().peak_held < 10 * MIB
