"""The admin API of a whole proxy: what it shows, which connections it closes, and that no client can hurt it."""

import asyncio
import json
import os
import socket
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from protocol.command_type import CommandType
from proxy.cli.admin.client import AdminClient, NoAnswer, Refused
from proxy.core.log import open_log
from proxy.web.admin import listener, slots
from proxy.web.admin.connections import LONGEST_NAME
from proxy.web.admin.listener import MOST_CONNECTIONS
from proxy.web.admin.paging import SLICE_ROWS, Row, Rows
from tests.support.clients.async_client import eventually
from tests.support.proxies import proxy_under_test
from tests.support.proxies.events import CheckedSink
from tests.support.proxies.proxy_under_test import TIGHT, Stage, jammed, namespace, queued_for_heap, staged
from tests.support.web.admin_api import Answered, ask, connect, raw

TOKEN = "correct-horse-battery-staple"
# Those to 10,000 who wait, and the slice of rows in hand.
REFERENCES_BYTES = 900_000
GET_TOP = b"GET /v1/top HTTP/1.1\r\nHost: localhost\r\n\r\n"


class Asked:
    """A stage, its control socket, and its log."""

    def __init__(self, stage: Stage, path: Path, log: BytesIO) -> None:
        self.stage = stage
        self.path = path
        self._log = log

    async def get(self, target: str) -> Any:
        """Get a document, which must be there."""
        answered = await ask(self.path, "GET", target)
        assert answered.status == 200, answered
        return answered.document

    async def ask(self, method: str, target: str, body: object = None) -> Answered:
        return await ask(self.path, method, target, body)

    async def rows(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = (await self.get("/v1/connections"))["connections"]
        return found

    def lines(self, event: str) -> list[dict[str, Any]]:
        lines = [json.loads(line) for line in self._log.getvalue().splitlines()]
        return [line for line in lines if line["event"] == event]

    async def nobody_asks(self) -> None:
        await self.stage.until(lambda: not len(self.stage.proxy.admin), "no admin client left")


@asynccontextmanager
async def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, **keys: Any) -> AsyncIterator[Asked]:
    """Run a stage with a control socket, and check that no admin client is left."""
    log = BytesIO()
    monkeypatch.setattr(proxy_under_test, "_log", lambda: open_log("info", "json", log))
    path = tmp_path / "s"
    async with staged(controlSocketPath=path, **keys) as stage:
        found = Asked(stage, path, log)
        yield found
        await found.nobody_asks()


# --- what it shows --------------------------------------------------------------------------------


async def test_clients_are_shown_with_what_they_are_and_what_they_moved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with asked(tmp_path, monkeypatch) as api:
        silent, lookup = await api.stage.client(), await api.stage.connected()
        relayed = await api.stage.relayed()
        size = (await lookup.topics(namespace(0))).ByteSize()
        first, second, third = await api.rows()
        assert [row["client"] for row in (first, second, third)] == [
            "{}:{}".format(*client.sock.getsockname()) for client in (silent, lookup, relayed)
        ]
        assert [row["mode"] for row in (first, second, third)] == ["handshake", "lookup", "relay"]
        assert [row["id"] for row in (first, second, third)] == [1, 2, 3]
        assert (first["from_client_bytes"], first["state"], first["principal"]) == (0, "idle", None)
        assert second["from_client_bytes"] > 0
        assert second["to_client_bytes"] > size
        assert third["broker"] == f"127.0.0.1:{api.stage.broker.port}"
        assert third["state"] == "open"
        (relay,) = api.stage.proxy.sessions.all_relays()
        before = third["from_client_bytes"]
        await relayed.ping()
        moved = await api.get("/v1/connections/3")
        assert moved["from_client_bytes"] > before
        # A look of the sessions' clock moves the numbers on, and loses none.
        relay.tick(api.stage.proxy.loop.time())
        assert (await api.get("/v1/connections/3"))["from_client_bytes"] == moved["from_client_bytes"]


async def test_pages_follow_each_other_and_filters_hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with asked(tmp_path, monkeypatch) as api:
        for _ in range(5):
            await api.stage.connected()
        await api.stage.relayed()
        page = await api.get("/v1/connections?limit=2")
        assert (page["total"], [row["id"] for row in page["connections"]], page["next"]) == (6, [1, 2], 2)
        page = await api.get("/v1/connections?limit=4&after=2")
        assert ([row["id"] for row in page["connections"]], page["next"]) == ([3, 4, 5, 6], None)
        relays = await api.get("/v1/connections?mode=relay")
        assert [row["id"] for row in relays["connections"]] == [6]
        assert (await api.get("/v1/connections?principal=nobody"))["connections"] == []
        client = AdminClient([api.path])
        rows = await asyncio.to_thread(lambda: list(client.pages("/v1/connections", "connections", {}, 5)))
        assert [row["id"] for row in rows] == [1, 2, 3, 4, 5]


async def test_a_page_is_made_in_slices_between_which_others_come_and_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with asked(tmp_path, monkeypatch) as api:
        stage = api.stage
        clients = [await stage.client() for _ in range(120)]
        await stage.until(lambda: len(stage.proxy.sessions) == 120, "all clients")
        registry, finds = stage.proxy.sessions.registry, []
        find = registry.find

        def watched(number: int) -> Any:
            if number == 51:
                # The second slice: those of the first are written, the third has not been looked at.
                stage.proxy.sessions.registry.find(110).member.abort("client_closed")  # type: ignore[union-attr, arg-type]
            finds.append(number)
            return find(number)

        monkeypatch.setattr(registry, "find", watched)
        page = await api.get("/v1/connections?limit=10000")
        assert len(clients) == page["total"] == 120
        assert [row["id"] for row in page["connections"]] == [*range(1, 110), *range(111, 121)]


async def test_waiters_limiters_and_groups_of_a_jam_are_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with asked(tmp_path, monkeypatch, **TIGHT) as api:
        await jammed(api.stage)
        await queued_for_heap(api.stage)
        queue = await api.get("/v1/queue")
        assert queue["lines"] == {"heap": 2, "direct": 2}
        waiting = [(row["line"], row["owner"], row["namespace"], row["grows"]) for row in queue["waiters"]]
        assert waiting[0][:1] + waiting[0][3:] == ("heap", True)
        assert waiting[1] == ("heap", namespace(4), namespace(4), False)
        assert {row[:3] for row in waiting[2:]} == {
            ("direct", namespace(1), namespace(1)),
            *(row[:3] for row in waiting[3:]),
        }
        assert all(row["waited_seconds"] >= 0 and row["seconds_left"] > 0 for row in queue["waiters"])
        assert len((await api.get("/v1/queue?limit=1"))["waiters"]) == 2
        limiters = (await api.get("/v1/limiters"))["limiters"]
        assert limiters["heap"]["held"] == api.stage.heap.held
        assert limiters["heap"]["growers_waiting"] == 1
        assert limiters["direct"]["queue_size"] == 2
        assert limiters["direct"]["top_holders"][0] == {"owner": namespace(0), "held": api.stage.direct.held}
        assert limiters["lookups"]["held"] == 5
        groups = await api.get("/v1/groups")
        assert groups["total"] == len(groups["groups"]) == 5
        stages = {group["namespace"]: group["stage"] for group in groups["groups"]}
        assert (stages[namespace(1)], stages[namespace(4)]) == ("direct", "heap")
        (reading,) = [group for group in groups["groups"] if group["namespace"] == namespace(0)]
        assert reading["holds"]["direct"] == api.stage.direct.held
        assert (reading["members"], len(reading["clients"]), reading["joinable"]) == (1, 1, False)


@pytest.mark.threat("untraced-admin-action")
async def test_configuration_and_log_level_are_those_in_force(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with asked(tmp_path, monkeypatch) as api:
        document = await api.get("/v1/config")
        assert document["keys"]["clusterName"]["value"] == "test"
        changed = await api.ask("PUT", "/v1/log-level", {"level": "debug", "seconds": 60})
        assert (changed.status, changed.document["level"], changed.document["configured"]) == (200, "debug", "info")
        assert (await api.get("/v1/log-level"))["seconds_left"] > 0
        assert (await api.ask("PUT", "/v1/log-level", {"level": "info"})).document["seconds_left"] is None
        first, _ = api.lines("admin change")
        assert (first["action"], first["new"], first["old"]) == ("log-level", "debug", "info")
        assert first["who"] == f"uid {os.getuid()}, pid {os.getpid()}"


# --- who is ended ---------------------------------------------------------------------------------


async def test_a_killed_client_leaves_nothing_of_its_queued_permit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with asked(tmp_path, monkeypatch, events=CheckedSink(keep=True), **TIGHT) as api:
        jam = await jammed(api.stage)
        queued = await queued_for_heap(api.stage)
        for client in (queued, jam.b, jam.a):
            name = "{}:{}".format(*client.sock.getsockname())
            (row,) = [row for row in await api.rows() if row["client"] == name]
            killed = await api.ask("DELETE", f"/v1/connections/{row['id']}")
            assert (killed.status, killed.document["client"]) == (200, name)
            assert (await api.ask("DELETE", f"/v1/connections/{row['id']}")).status == 404
        # Those it held up go on; the reader's memory is free.
        await jam.c.answer()
        await jam.d.answer()
        stage = api.stage
        await stage.until(lambda: not stage.heap.held and not stage.direct.held, "all memory given back")
        assert stage.caused("admin") == 3
        # Events are made a moment after what they tell of.
        await stage.until(lambda: any(event["outcome"] == "cancelled" for event in stage.events.kept), "the event")
        assert {event["close_cause"] for event in stage.events.kept if event["outcome"] == "cancelled"} == {"admin"}
        lines = api.lines("admin change")
        assert [(line["action"], line["cause"]) for line in lines] == [("kill", "admin")] * 3


async def test_a_killed_relay_ends_on_both_sides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with asked(tmp_path, monkeypatch) as api:
        client = await api.stage.relayed()
        before = len(api.stage.broker.connections)
        (row,) = await api.rows()
        assert (await api.ask("DELETE", f"/v1/connections/{row['id']}")).status == 200
        await client.rest()
        assert api.stage.caused("admin") == 1
        await eventually(lambda: len(api.stage.broker.connections) == before - 1, "the broker's side gone")
        assert await api.rows() == []


# --- what is wrong with a request -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "target", "body", "status", "reason"),
    [
        ("GET", "/", None, 404, "GET /v1 lists all"),
        ("GET", "/v2/top", None, 404, "no such path"),
        ("POST", "/v1/top", None, 405, "this path has GET only"),
        ("GET", "/v1/reload", None, 405, "this path has POST only"),
        ("HEAD", "/v1/../v1/top", None, 400, "without . and .."),
        ("GET", "/v1/connections/x", None, 400, "id: got 'x', expected the number"),
        ("DELETE", "/v1/connections/-1", None, 400, "id: got '-1'"),
        ("DELETE", "/v1/connections/" + "9" * 40, None, 400, "id: got"),
        ("DELETE", "/v1/connections/77", None, 404, "no connection 77"),
        ("GET", "/v1/connections?limit=0", None, 400, "limit: got '0', expected a whole number from 1 to 10000"),
        ("GET", "/v1/connections?limit=1.5", None, 400, "limit: got '1.5'"),
        ("GET", "/v1/connections?mode=fast", None, 400, "mode: got 'fast', expected one of handshake, lookup, relay"),
        ("GET", "/v1/connections?page=2", None, 400, "got parameter 'page', expected limit, after"),
        ("GET", "/v1/top?x=1", None, 400, "this path has no parameters"),
        ("PUT", "/v1/log-level", None, 400, "level: got nothing"),
        ("PUT", "/v1/log-level", {"level": "loud"}, 400, "level: got 'loud', expected one of debug"),
        ("PUT", "/v1/log-level", {"level": "info", "seconds": True}, 400, "seconds: got 'True'"),
        ("PUT", "/v1/log-level", {"level": "info", "loud": 1}, 400, "got field 'loud', expected level, seconds"),
        ("PUT", "/v1/log-level", ["info"], 400, "expected a JSON object"),
        ("PUT", "/v1/log-level", {"level": "x" * 5000}, 413, "at most 4096 bytes"),
        ("POST", "/v1/drain", {"at_once": 1}, 400, "at_once: got '1', expected true or false"),
        ("POST", "/v1/drain", None, 503, "not run by `serve`"),
    ],
)
async def test_a_wrong_request_gets_one_clear_error(
    method: str, target: str, body: object, status: int, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with asked(tmp_path, monkeypatch) as api:
        answered = await api.ask("GET" if method == "HEAD" else method, target, body)
        assert (answered.status, answered.headers["content-type"]) == (status, "application/json")
        assert reason in answered.document["reason"]


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"\x16\x03\x01\x02\x00",
        b"\n\n\n\n",
        b'{"show": "top"}\n',
        b"GET /v1/top\r\n\r\n",
        b"GET /v1/top HTTP/1.1\r\n" + b"X: " + b"y" * 100_000,
        b"GET /v1/top HTTP/1.1\r\nHost: a\r\n" + b"X: y\r\n" * 5000 + b"\r\n",
        b"POST /v1/drain HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"PUT /v1/log-level HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n\xff\xfe\x00{}",
    ],
)
async def test_garbage_ends_in_an_error_or_a_cut_and_costs_nobody_anything(
    request_bytes: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener, "REQUEST_SECONDS", 0.3)
    async with asked(tmp_path, monkeypatch) as api:
        answer = await raw(api.path, request_bytes)
        assert answer == b"" or answer.split(b" ", 2)[1].startswith(b"4")
        await api.nobody_asks()
        assert (await api.get("/v1/top"))["proxy"]["state"] == "serving"
        assert not api.stage.proxy.counters.shared.internal_errors


@pytest.mark.threat("rude-admin-clients")
async def test_the_silent_and_the_stuck_are_cut_and_hold_no_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener, "REQUEST_SECONDS", 0.3)
    monkeypatch.setattr(listener, "ANSWER_SECONDS", 0.3)
    async with asked(tmp_path, monkeypatch) as api:
        admin = api.stage.proxy.admin
        monkeypatch.setattr(api.stage.proxy, "shown", lambda: {"much": "x" * 8_000_000})
        with ExitStack() as held:
            for request in (b"", b"GET /v1", GET_TOP):
                sock = held.enter_context(socket.socket(socket.AF_UNIX))
                sock.connect(str(api.path))
                sock.sendall(request)
            await eventually(lambda: len(admin) == 3, "three places taken")
            await eventually(lambda: not len(admin), "all cut")


async def test_a_list_that_nobody_reads_is_made_no_further_than_its_memory_goes_and_is_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener, "ANSWER_SECONDS", 0.3)
    token, made, ended = tmp_path / "token", Counter[int](), set[int]()
    token.write_text(TOKEN)

    def endless(asked: Mapping[str, object]) -> Rows:
        number = int(str(asked["limit"]))

        def rows() -> Iterator[Sequence[Row]]:
            try:
                while True:
                    # As long as a row gets: names are cut at 200 characters.
                    yield [{"owner": "\u00e9" * LONGEST_NAME, "namespace": "n" * LONGEST_NAME}] * SLICE_ROWS
                    made[number] += SLICE_ROWS * 3 * LONGEST_NAME
            finally:
                ended.add(number)

        return Rows({}, "waiters", rows())

    async with asked(tmp_path, monkeypatch, adminApiAddress="127.0.0.1:0", adminApiTokenFilePath=token) as api:
        admin, port = api.stage.proxy.admin, api.stage.proxy.admin_port
        await api.get("/v1")
        monkeypatch.setitem(admin._server._views, "queue", endless)  # type: ignore[union-attr]
        with ExitStack() as held:
            for number in range(1, 2 * MOST_CONNECTIONS + 1):
                local = number <= MOST_CONNECTIONS
                sock = held.enter_context(socket.socket(socket.AF_UNIX if local else socket.AF_INET))
                sock.connect(str(api.path) if local else ("127.0.0.1", port))
                target = f"GET /v1/queue?limit={number} HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {TOKEN}"
                sock.sendall(f"{target}\r\n\r\n".encode())
            # Not at the next look of the garbage collector: what it holds is free when it is cut.
            await eventually(lambda: len(ended) == 2 * MOST_CONNECTIONS, "all cut")
        # What the other end's kernel has taken from one at the address is not the proxy's.
        most_bytes = max(made[number] for number in range(1, MOST_CONNECTIONS + 1))
        assert 0 < most_bytes <= listener.ADMIN_CLIENT_BYTES - REFERENCES_BYTES


@pytest.mark.threat("rude-admin-clients")
async def test_of_a_hundred_at_once_a_few_are_answered_and_the_others_told_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with asked(tmp_path, monkeypatch) as api:
        await api.get("/v1")
        gate, waiting = asyncio.Event(), []
        changes = api.stage.proxy.admin._server._actions  # type: ignore[union-attr]

        async def held(*_: object) -> Any:
            waiting.append(1)
            await gate.wait()
            raise RuntimeError("never seen")

        monkeypatch.setitem(changes, "reload", held)
        stuck = [await connect(api.path) for _ in range(MOST_CONNECTIONS)]
        for _, writer in stuck:
            writer.write(b"POST /v1/reload HTTP/1.1\r\nHost: a\r\n\r\n")
        await eventually(lambda: len(waiting) == MOST_CONNECTIONS, "all places taken")
        answers = await asyncio.gather(*(api.ask("GET", "/v1/top") for _ in range(100)))
        assert {answered.status for answered in answers} == {503}
        assert "admin clients are connected already" in answers[0].document["reason"]
        with pytest.raises(Refused, match="8 admin clients are connected already"):
            await asyncio.to_thread(AdminClient([api.path]).ask, "GET", "/v1/limiters")
        # Who vanishes in the middle leaves its place, and ends what was done for it.
        for _, writer in stuck:
            writer.close()
        await api.nobody_asks()
        assert (await api.get("/v1/top"))["clients"]["lookup_mode"] == 0


@pytest.mark.threat("rude-admin-clients")
async def test_silent_ones_at_the_address_keep_nobody_off_the_control_socket(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = tmp_path / "token"
    token.write_text(TOKEN)
    monkeypatch.setattr(slots, "SILENT_SECONDS", 60.0)
    async with asked(tmp_path, monkeypatch, adminApiAddress="127.0.0.1:0", adminApiTokenFilePath=token) as api:
        port = api.stage.proxy.admin_port
        silent = [await connect(port) for _ in range(MOST_CONNECTIONS)]
        await eventually(lambda: len(api.stage.proxy.admin) == MOST_CONNECTIONS, "all places taken")
        assert (await ask(port, "GET", "/v1/top")).status == 503
        assert (await api.ask("GET", "/v1/top")).status == 200
        for _, writer in silent:
            writer.close()


async def test_an_answer_that_fails_ends_its_exchange_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with asked(tmp_path, monkeypatch) as api:

        def broken(_: object) -> Any:
            raise RuntimeError("no numbers")

        monkeypatch.setattr("proxy.app.top_document.top_document", broken)
        failed = await api.ask("GET", "/v1/top")
        assert (failed.status, failed.document["reason"]) == (500, "internal error of the proxy, see its log")
        api.stage.expected_internal_errors = {"admin": 2}
        with pytest.raises(NoAnswer, match="internal error"):
            await asyncio.to_thread(AdminClient([api.path]).top)


# --- by the network -------------------------------------------------------------------------------


@pytest.mark.threat("admin-without-token", "admin-csrf")
@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 401),
        ({"Authorization": "Basic YTpi"}, 401),
        ({"Authorization": "Bearer"}, 401),
        ({"Authorization": f"Bearer {TOKEN}x"}, 401),
        ({"Authorization": f"Bearer {TOKEN}", "Origin": "http://evil.example"}, 403),
        ({"Authorization": f"Bearer {TOKEN}", "Sec-Fetch-Site": "cross-site"}, 403),
        ({"Authorization": f"bearer {TOKEN}"}, 404),
    ],
)
async def test_at_its_address_nothing_is_served_without_the_token_or_to_web_pages(
    headers: dict[str, str], status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = tmp_path / "token"
    token.write_text(f"{TOKEN}\n")
    keys = {"adminApiAddress": "127.0.0.1:0", "adminApiTokenFilePath": token}
    async with asked(tmp_path, monkeypatch, **keys) as api:
        port = api.stage.proxy.admin_port
        answered = await ask(port, "DELETE", "/v1/connections/7", headers=headers)
        assert answered.status == status
        assert TOKEN not in json.dumps(answered.document)
        if status == 401:
            assert answered.headers["www-authenticate"] == "Bearer"


async def test_a_token_that_is_no_text_is_not_the_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    token = tmp_path / "token"
    token.write_text(TOKEN)
    async with asked(tmp_path, monkeypatch, adminApiAddress="127.0.0.1:0", adminApiTokenFilePath=token) as api:
        request = b"GET /v1/top HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer \xff\xfe\r\n\r\n"
        assert (await raw(api.stage.proxy.admin_port, request)).startswith(b"HTTP/1.1 401 ")
        assert not api.stage.proxy.counters.shared.internal_errors


async def test_a_new_token_needs_no_restart_and_a_lost_one_lets_nobody_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = tmp_path / "token"
    token.write_text(TOKEN)
    keys = {"adminApiAddress": "127.0.0.1:0", "adminApiTokenFilePath": token}
    async with asked(tmp_path, monkeypatch, **keys) as api:
        port, client = api.stage.proxy.admin_port, await api.stage.connected()
        headers = {"Authorization": f"Bearer {TOKEN}"}
        (row,) = (await ask(port, "GET", "/v1/connections", headers=headers)).document["connections"]
        token.write_text("another-word-of-some-length")
        assert (await ask(port, "GET", "/v1/top", headers=headers)).status == 401
        by_cli = AdminClient(address=f"127.0.0.1:{port}", token="another-word-of-some-length")
        await asyncio.to_thread(by_cli.ask, "DELETE", f"/v1/connections/{row['id']}")
        await client.rest()
        (line,) = api.lines("admin change")
        assert line["who"].startswith("token, from 127.0.0.1:")
        token.unlink()
        assert (await ask(port, "GET", "/v1/top", headers=headers)).status == 503


async def test_groups_are_known_until_their_last_member_has_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with asked(tmp_path, monkeypatch) as api:
        gate = api.stage.broker.script.hold(CommandType.GET_TOPICS_OF_NAMESPACE)
        clients = [await api.stage.connected() for _ in range(4)]
        for client in clients:
            await client.ask_topics(namespace(0))
        registry = api.stage.proxy.services.requests.topic_lists.groups.registry

        def members() -> int:
            found = [registry.find(number) for number in registry.ids()]
            return sum(len(entry.member.members) for entry in found if entry is not None)

        await api.stage.until(lambda: members() == 4, "all members")
        shown = (await api.get("/v1/groups"))["groups"]
        assert sum(group["members"] for group in shown) == 4
        assert all(group["shared"] for group in shown)
        gate.set()
        for client in clients:
            await client.answer()
        await api.stage.until(lambda: not len(registry), "no group left")
