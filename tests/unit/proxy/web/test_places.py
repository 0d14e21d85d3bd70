"""Who gets a place, and who has to give one back for those who wait."""

import asyncio
import sys
from collections.abc import Callable, Hashable
from typing import Any, cast

import pytest

from limiter.errors import PermitAcquireTimeout
from proxy.auth.identity import Principal
from proxy.core.addresses import host_network
from proxy.core.log import open_log
from proxy.net.write_watch import WriteLimits
from proxy.web.forward.places import GUESTS_A_TURN, LOOK_SECONDS, Place, SharedPlaces
from proxy.web.forward.uploads import Sample, Upload
from proxy.web.http.clients import WebClient
from tests.support.loops.clock import ManualClock

LEAST = 100


class Request:
    """A guest whose client takes `rate` bytes a second, of as many as there are; None: its server is waited for."""

    def __init__(
        self, clock: ManualClock, key: Hashable, rate: float | None = None, *, uploading: bool = False
    ) -> None:
        self.key = key
        self.uploading = uploading
        self._callbacks: list[Callable[[], None]] = []
        self.rate = rate
        self.pending = sys.maxsize
        self.ended: list[bool] = []
        self.errors: list[Exception] = []
        self.place: Place | None = None
        self._clock = clock

    def when_uploaded(self, callback: Callable[[], None]) -> None:
        self._callbacks.append(callback)
        if not self.uploading:
            callback()

    def upload_ends(self) -> None:
        self.uploading = False
        for callback in self._callbacks:
            callback()

    def sample(self, now: float) -> Sample | None:
        return None if self.rate is None else Sample(self, now, int(now * self.rate), self.pending)

    def give_way(self, *, slow: bool) -> None:
        self.ended.append(slow)

    def crashed(self, error: Exception) -> None:
        self.errors.append(error)


class Stage:
    """Places, and the requests that hold them or wait."""

    def __init__(self, limit: int) -> None:
        self.clock = ManualClock()
        self.places = SharedPlaces("places", limit, self.clock, lambda: WriteLimits(20.0, LEAST), open_log("error"))
        self.served: list[Hashable] = []

    async def held(
        self, key: Hashable, count: int, rate: float | None = None, *, uploading: bool = False, for_list: bool = False
    ) -> list[Request]:
        requests = [Request(self.clock, key, rate, uploading=uploading) for _ in range(count)]
        for request in requests:
            request.place = await self.places.enter(cast(Any, request), 5.0, for_list=for_list)
        return requests

    async def waiting(
        self, key: Hashable, count: int = 1, *, request: Request | None = None, for_list: bool = False
    ) -> list[asyncio.Task[Place]]:
        async def wait() -> Place:
            asked: Any = request or Request(self.clock, key)
            place = await self.places.enter(asked, 60.0, for_list=for_list)
            self.served.append(key)
            return place

        tasks = [asyncio.get_running_loop().create_task(wait()) for _ in range(count)]
        await asyncio.sleep(0)
        return tasks

    def upload(self, key: Hashable) -> Request:
        return Request(self.clock, key, uploading=True)

    def look(self, times: int = 1) -> None:
        self.clock.advance(times * LOOK_SECONDS)


def ended(requests: list[Request], *, slow: bool) -> int:
    return sum(request.ended == [slow] for request in requests)


async def turns() -> None:
    """Let tasks go on that a change wakes."""
    for _ in range(10):
        await asyncio.sleep(0)


def released(requests: list[Request]) -> None:
    for request in requests:
        assert request.place is not None
        request.place.release()


async def left(*tasks: asyncio.Task[Place]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_keys_take_turns_and_the_requests_of_a_key_are_served_as_they_came() -> None:
    stage = Stage(4)
    many = await stage.held("many", 4)
    waiting = await stage.waiting("many", 10) + await stage.waiting("few", 2)
    released(many)
    await turns()
    assert sorted(map(str, stage.served)) == ["few", "few", "many", "many"]
    await left(*waiting)


async def test_as_many_slow_ones_end_as_wait_and_those_of_the_key_with_most_first() -> None:
    stage = Stage(10)
    few, many = await stage.held("few", 2, 0.0), await stage.held("many", 8, 50.0)
    waiting = await stage.waiting("new", 3)
    stage.look(0)
    assert not any(request.ended for request in few + many)
    stage.look()
    assert (ended(few, slow=True), ended(many, slow=True)) == (0, 3)
    # Those who have been told have time to leave, and nobody has to leave twice for one who waits.
    stage.look()
    assert sum(len(request.ended) for request in few + many) == 3
    await left(*waiting)


async def test_who_is_quick_or_takes_all_there_is_or_waits_for_a_server_stays() -> None:
    stage = Stage(3)
    quick, served, waits = [(await stage.held("key", 1, rate))[0] for rate in (100.0, 1.0, None)]
    served.pending = 1
    waiting = await stage.waiting("key")
    stage.look(10)
    assert not quick.ended + served.ended + waits.ended
    await left(*waiting)


async def test_an_upload_whose_body_has_come_waits_for_no_upload_and_leaves_its_place_to_another() -> None:
    stage = Stage(4)
    held = await stage.held("key", 3, uploading=True)
    whole, slow = stage.upload("key"), stage.upload("other")
    tasks = [*await stage.waiting("whole", request=whole), *await stage.waiting("slow", request=slow)]
    assert stage.served == []
    whole.upload_ends()
    await turns()
    assert (stage.served, stage.places.semaphore.held, stage.places.uploads.held) == (["whole"], 4, 3)
    held[0].upload_ends()
    await turns()
    # The first keeps its place among all, and has none of the uploads' any more.
    assert (stage.served, stage.places.uploads.held, stage.places.semaphore.queue_size) == (["whole"], 3, 1)
    (await tasks[0]).release()
    await turns()
    assert stage.served == ["whole", "slow"]
    (await tasks[1]).release()
    released(held)
    assert stage.places.idle
    assert (stage.places.semaphore.held, stage.places.uploads.held) == (0, 0)


async def test_a_key_above_its_share_gives_way_to_a_key_below_down_to_the_share() -> None:
    stage = Stage(10)
    many = await stage.held("many", 10)
    waiting = await stage.waiting("new", 8)
    stage.look()
    assert ended(many, slow=False) == 0
    stage.look()
    # The longest ones: half of all places is the share of one of two.
    assert [bool(request.ended) for request in many] == [True] * 5 + [False] * 5
    released(many[:5])
    await turns()
    stage.look(5)
    assert (ended(many, slow=False), stage.served) == (5, ["new"] * 5)
    await left(*waiting)


async def test_an_address_that_waits_for_itself_ends_no_request_of_its_own() -> None:
    stage = Stage(4)
    requests = await stage.held("nat", 4)
    waiting = await stage.waiting("nat", 20)
    stage.look(30)
    assert not any(request.ended for request in requests)
    await left(*waiting)


@pytest.mark.threat("many-networks-one-customer")
async def test_all_networks_of_a_customer_have_one_share() -> None:
    stage = Stage(10)
    crowd = [
        request for number in range(10) for request in await stage.held(host_network(f"2001:db8:1:{number:x}::1"), 1)
    ]
    waiting = await stage.waiting("nat", 8)
    for number in range(10, 30):
        waiting += await stage.waiting(host_network(f"2001:db8:1:{number:x}::1"))
    stage.look(2)
    assert [bool(request.ended) for request in crowd] == [True] * 5 + [False] * 5
    released(crowd[:5])
    await turns()
    # The customer has its turns, too, but one for each of the others.
    assert stage.served.count("nat") >= 2
    await left(*waiting)


@pytest.mark.threat("neighbours-in-a-site")
async def test_the_networks_of_a_customer_share_what_the_customer_has() -> None:
    stage = Stage(10)
    nat = await stage.held("nat", 5)
    many = await stage.held(host_network("2001:db8:1:1::1"), 5)
    waiting = await stage.waiting(host_network("2001:db8:1:2::1"), 5)
    stage.look(2)
    assert (ended(nat, slow=False), ended(many, slow=False)) == (0, 2)
    await left(*waiting)


async def test_a_look_at_many_takes_several_turns() -> None:
    stage = Stage(2 * GUESTS_A_TURN + 1)
    requests = await stage.held("key", 2 * GUESTS_A_TURN + 1, 0.0)
    requests[0].rate = float("nan")
    waiting = await stage.waiting("key", 2)
    stage.look()
    assert ended(requests, slow=True) == 2
    assert [type(error) for error in requests[0].errors] == [ValueError] * 2
    await left(*waiting)


async def test_a_cancelled_wait_and_a_second_release_leave_nothing() -> None:
    stage = Stage(1)
    (request,) = await stage.held("key", 1)
    gone, late = await stage.waiting("key", 2)
    gone.cancel()
    stage.clock.advance(60.0)
    with pytest.raises(PermitAcquireTimeout):
        await late
    for _ in range(2):
        released([request])
    assert stage.places.idle
    stage.look(2)
    assert stage.clock.pending == 0


@pytest.mark.threat("web-lists-one-address")
async def test_lists_of_one_key_leave_places_to_lists_of_others_and_to_all_other_requests() -> None:
    stage = Stage(64)
    # Of 64 places 56 are for lists, and 7 of these for keys that hold none.
    crowd = await stage.waiting("many", 58, for_list=True)
    await turns()
    assert stage.served == ["many"] * 49
    await stage.waiting("new", for_list=True)
    await stage.waiting("many", 14)
    await turns()
    assert stage.served[49:] == ["new", *["many"] * 14]
    assert not any(task.done() for task in crowd[49:])
    await left(*crowd[49:])


async def test_lists_that_wait_have_slow_lists_end_and_no_other_requests() -> None:
    stage = Stage(64)
    others, slow = await stage.held("many", 10, 0.0), await stage.held("many", 49, 0.0, for_list=True)
    waiting = await stage.waiting("many", 3, for_list=True)
    stage.look(1)
    assert (ended(others, slow=True), ended(slow, slow=True)) == (0, 3)
    released([request for request in slow if request.ended])
    await turns()
    assert stage.served == ["many"] * 3
    await left(*waiting)


@pytest.mark.parametrize(
    ("client", "key"),
    [
        (WebClient("10.0.0.1:5000", "10.9.9.9"), "10.0.0.1"),
        (WebClient("[2001:db8:0:1:a::b]:5000", "?"), "2001:db8:0:1::/64"),
        (WebClient("10.0.0.1:5000", "?", role="everybody", anonymous=True), "10.0.0.1"),
        (WebClient("10.0.0.1:5000", "?", role="alice"), Principal("alice")),
    ],
)
def test_who_has_proven_nothing_takes_turns_by_host_and_others_by_principal(client: WebClient, key: Hashable) -> None:
    assert client.turn_key == key


# --- what is measured of an upload -----------------------------------------------------------------


def limits() -> WriteLimits:
    return WriteLimits(20.0, 100)


def test_what_a_broker_takes_of_the_time_is_not_the_clients() -> None:
    upload = Upload(limits)
    upload.wait(0.0, lambda: None)
    upload.received(1.0, 10)
    # The broker takes a minute for these ten bytes.
    assert upload.sample(61.0) is None
    upload.wait(61.0, lambda: None)
    found = upload.sample(62.0)
    assert found is not None
    assert (found.of, found.seconds, found.moved_bytes) == (upload, 2.0, 10)


def test_an_upload_that_is_ended_says_which_key_it_was() -> None:
    upload, stopped = Upload(limits), []
    assert "topicListWriteStallTimeoutMillis" in upload.refusal.reason
    upload.stop()
    assert not upload.too_slow
    upload.wait(0.0, lambda: stopped.append(True))
    upload.stop()
    assert stopped == [True]
    assert (upload.refusal.status, "topicListWriteMinBytesPerSecond" in upload.refusal.reason) == (408, True)
