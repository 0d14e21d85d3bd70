"""Contents of pages that clients share: how often they are made, for whom, and in which slices."""

import asyncio
import gzip
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest

from proxy.web.http import renderings
from proxy.web.http.errors import HttpRefused
from proxy.web.http.renderings import Content, Renderings, SharedRendering, accepts_gzip
from tests.support.loops.loops import most_in_an_iteration, run_virtual
from tests.support.web.web_parts import running
from tests.unit.limiter.harness import settle, start


class Counting:
    """A content that says how often it was made, when the gate is open."""

    def __init__(self) -> None:
        self.made = 0
        self.gate = asyncio.Event()
        self.gate.set()
        self.error: Exception | None = None

    async def __call__(self) -> Content:
        self.made += 1
        number = self.made
        await self.gate.wait()
        if self.error is not None:
            raise self.error
        return Content(200, (f"{number}".encode(),))


@asynccontextmanager
async def books_of() -> AsyncIterator[tuple[Renderings, Counting, SharedRendering]]:
    books, make = Renderings(), Counting()
    yield books, make, books.of(make)
    await books.close()


async def test_clients_that_ask_during_a_rendering_share_it() -> None:
    async with books_of() as (_, make, shared):
        make.gate.clear()
        asking = [await start(shared.get()) for _ in range(50)]
        make.gate.set()
        assert {rendered.body for rendered in await asyncio.gather(*asking)} == {b"1"}
        assert make.made == 1


def test_a_content_is_kept_for_a_second_and_not_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with books_of() as (_, _, shared):
            bodies = []
            for _ in range(4):
                bodies.append((await shared.get()).body)
                await asyncio.sleep(0.4)
            assert bodies == [b"1", b"1", b"1", b"2"]
            await asyncio.sleep(1.0)
            monkeypatch.setattr(renderings, "KEEP_SECONDS", 0.0)
            assert [(await shared.get()).body for _ in range(2)] == [b"3", b"4"]

    run_virtual(main())


async def test_the_client_that_asked_first_may_leave() -> None:
    async with books_of() as (_, make, shared):
        make.gate.clear()
        first, second = await start(shared.get()), await start(shared.get())
        first.cancel()
        await settle()
        make.gate.set()
        assert (await second).body == b"1"
        assert first.cancelled()


async def test_an_error_reaches_those_who_wait_and_the_next_one_tries_again() -> None:
    async with books_of() as (_, make, shared):
        make.error = OSError("the disk")
        make.gate.clear()
        asking = [await start(shared.get()) for _ in range(3)]
        make.gate.set()
        for found in await asyncio.gather(*asking, return_exceptions=True):
            assert isinstance(found, OSError)
        make.error = None
        assert (await shared.get()).body == b"2"


async def test_nobody_gets_a_content_from_before_a_change() -> None:
    async with books_of() as (books, make, shared):
        assert (await shared.get()).body == b"1"
        books.forget()
        make.gate.clear()
        early = await start(shared.get())
        books.forget()
        late = await start(shared.get())
        make.gate.set()
        assert ((await early).body, (await late).body) == (b"2", b"3")
        assert (await shared.get()).body == b"3"


async def test_the_end_of_the_proxy_ends_renderings_and_tells_their_clients() -> None:
    async with books_of() as (books, make, shared):
        make.gate.clear()
        asking = await start(shared.get())
        await books.close()
        with pytest.raises(HttpRefused, match="stopping"):
            await asking
        with pytest.raises(HttpRefused, match="stopping"):
            await shared.get()


@pytest.mark.threat("endless-own-pages")
async def test_the_loop_turns_between_slices_and_one_content_is_made_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []

    def pieces() -> Iterator[bytes]:
        for number in range(10):
            made.append(number)
            yield b"x"

    async def make() -> Content:
        return Content(200, pieces())

    async def another() -> Content:
        return await make()

    monkeypatch.setattr(renderings, "SLICE_SECONDS", 0.0)
    books = Renderings()
    both = asyncio.gather(*(books.of(each).get() for each in (make, another)))
    assert await most_in_an_iteration(lambda: len(made), 20) == 1
    await both
    assert made == [*range(10)] * 2


@pytest.mark.parametrize(
    ("header", "accepted"),
    [
        ("", False),
        ("gzip", True),
        ("deflate, GZIP;q=0.5", True),
        ("x-gzip", True),
        ("gzip;q=0", False),
        ("gzip; q=0.0, br", False),
        ("identity", False),
        ("bgzip", False),
    ],
)
def test_gzip_is_for_clients_that_take_it(header: str, accepted: bool) -> None:
    assert accepts_gzip(header) is accepted


@pytest.mark.threat("endless-own-pages")
async def test_metrics_are_rendered_once_for_all_who_ask_within_the_time_and_packed_for_those_who_want(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(renderings, "KEEP_SECONDS", 60.0)
    made: list[int] = []

    def render() -> bytes:
        made.append(1)
        return b"a_metric 1.0\n" * 1000

    async with running(render) as server:
        answers = await asyncio.gather(*(server.get("/metrics") for _ in range(20)))
        assert {(status, body) for status, _, body in answers} == {(200, "a_metric 1.0\n" * 1000)}
        request = b"GET /metrics HTTP/1.1\r\nHost: x\r\nAccept-Encoding: gzip\r\nConnection: close\r\n\r\n"
        head, _, body = (await server.raw(request)).partition(b"\r\n\r\n")
        assert b"Content-Encoding: gzip" in head
        assert b"Vary: Accept-Encoding" in head
        assert gzip.decompress(body) == b"a_metric 1.0\n" * 1000
        assert "content-encoding" not in (await server.get("/metrics")).headers
        assert len(made) == 1


async def test_a_page_that_is_not_made_in_time_is_an_error_and_not_a_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    async def hangs(*_: object) -> None:
        await asyncio.get_running_loop().create_future()

    monkeypatch.setattr("proxy.web.pages.in_thread", hangs)
    async with running(statusFilePath="/somewhere", metricsServletTimeoutMs="50") as server:
        answers = await asyncio.gather(*(server.get("/status.html") for _ in range(5)))
        assert {status for status, _, _ in answers} == {503}
        assert all("metricsServletTimeoutMs" in body for _, _, body in answers)
        assert (await server.get("/healthz")).status == 200
