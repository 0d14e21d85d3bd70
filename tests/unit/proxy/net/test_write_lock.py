"""The right to write a list to one client, and the promise of it."""

from proxy.net.write_watch import WriteLock
from tests.support.patience import in_time


async def test_a_lane_is_free_without_promise_and_without_writer() -> None:
    lane = WriteLock()
    free = [lane.free]
    lane.reserve()
    free.append(lane.free)
    lane.unreserve()
    await lane.acquire()
    free.append(lane.free)
    lane.release()
    free.append(lane.free)
    assert free == [True, False, False, True]


async def test_a_promise_holds_up_nobody_who_has_a_list_to_write() -> None:
    lane = WriteLock()
    lane.reserve()
    async with in_time():
        await lane.acquire()
    lane.release()


async def test_a_lane_tells_those_who_listen_that_it_may_be_free() -> None:
    lane, told = WriteLock(), list[str]()

    def tell() -> None:
        told.append("told")

    lane.listen(tell)
    lane.reserve()
    lane.unreserve()
    await lane.acquire()
    lane.release()
    lane.forget(tell)
    lane.reserve()
    lane.unreserve()
    assert told == ["told", "told"]
