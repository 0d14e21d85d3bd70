"""The admin API of a whole proxy: what it shows, which connections it closes, and that no client can hurt it."""

import asyncio
import json
import os
import re
import select
import socket
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, suppress
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

from proxy.app.memory.nodes import HEAP, NODES
from proxy.cli.admin.client import AdminClient, NoAnswer, Refused
from proxy.cli.main import main
from proxy.web.admin import slots
from proxy.web.admin.actions import ProcessActions
from proxy.web.admin.connections import LONGEST_NAME
from proxy.web.admin.listener import ADMIN_CLIENT_BYTES, MOST_CONNECTIONS
from proxy.web.admin.paging import SLICE_ROWS, Row, Rows
from proxy.web.admin.routes import LONGEST_PROFILE_SECONDS
from proxy.web.admin.server import AdminConnection, AdminServer
from proxy.web.admin.slots import AdminSlot
from proxy.web.admin.views import ListViews
from tests.support.clients.async_client import LOOPBACK, eventually
from tests.support.patience import in_time, patient
from tests.support.proxies.counted import counted_by
from tests.support.proxies.events import CheckedSink
from tests.support.proxies.proxy_under_test import TIGHT, jammed, namespace, queued_for_heap
from tests.support.web.admin_api import TOKEN, AdminStage, Answered, admin_staged, ask, connect, raw

# Those to 10,000 who wait, and the slice of rows in hand.
REFERENCES_BYTES = 900_000
GET_TOP = b"GET /v1/top HTTP/1.1\r\nHost: localhost\r\n\r\n"


@pytest.fixture
async def api(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[AdminStage]:
    async with admin_staged(tmp_path, monkeypatch, **getattr(request, "param", {})) as found:
        yield found


def keys(**given: Any) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("api", [given], indirect=True)


# --- what it shows --------------------------------------------------------------------------------


async def test_clients_are_shown_with_what_they_are_and_what_they_moved(api: AdminStage) -> None:
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
    before = third["from_client_bytes"]
    await relayed.ping()
    assert (await api.get("/v1/connections/3"))["from_client_bytes"] > before


async def test_pages_follow_each_other_and_filters_hold(api: AdminStage) -> None:
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


@keys(**TIGHT)
async def test_waiters_limiters_and_groups_of_a_jam_are_shown(api: AdminStage) -> None:
    await jammed(api.stage)
    await queued_for_heap(api.stage)
    queue = await api.get("/v1/queue")
    assert queue["lines"] == {"heap": 2, "direct": 2}
    waiting = [(row["line"], row["owner"], row["namespace"], row["grows"]) for row in queue["waiters"]]
    assert waiting[0][:1] + waiting[0][3:] == ("heap", True)
    assert waiting[1] == ("heap", namespace(4), namespace(4), False)
    assert ("direct", namespace(1), namespace(1)) in {row[:3] for row in waiting[2:]}
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


@pytest.mark.parametrize(
    "api",
    [
        {"topicListUnprovenReadersMemoryPercent": 40, "maxConcurrentLookupRequests": 77, "topicListFairness": fairness}
        for fairness in ("fifo", "connection")
    ],
    indirect=True,
)
async def test_each_limiter_has_the_size_and_the_turns_that_the_table_of_limits_says(api: AdminStage) -> None:
    await (await api.stage.connected()).topics(namespace(0))
    shown = (await api.get("/v1/limiters"))["limiters"]
    config, broker = api.stage.proxy.config, str(api.stage.broker.port)
    fair = config.topic_list_fairness != "fifo"
    rows = {re.sub(rf" \S+:{broker}$", " ...", name): row for name, row in shown.items()}
    declared = {node.name: node for node in NODES if node.name in rows}
    assert len(rows) == len(declared) == 11
    assert {name: (row["limit"], row["share_by_key"]) for name, row in rows.items()} == {
        name: (node.size(config), fair if node.turns == HEAP.turns else bool(node.turns))
        for name, node in declared.items()
    }


@pytest.mark.threat("untraced-admin-action")
async def test_configuration_and_log_level_are_those_in_force(api: AdminStage) -> None:
    document = await api.get("/v1/config")
    assert document["keys"]["clusterName"]["value"] == "test"
    changed = await api.ask("PUT", "/v1/log-level", {"level": "debug", "seconds": 60})
    assert (changed.status, changed.document["level"], changed.document["configured"]) == (200, "debug", "info")
    assert (await api.get("/v1/log-level"))["seconds_left"] > 0
    assert (await api.ask("PUT", "/v1/log-level", {"level": "info"})).document["seconds_left"] is None
    first, _ = api.log.of("admin change")
    assert (first["action"], first["new"], first["old"]) == ("log-level", "debug", "info")
    assert first["who"] == f"uid {os.getuid()}, pid {os.getpid()}"


# --- who is ended ---------------------------------------------------------------------------------


@keys(events=CheckedSink(keep=True), **TIGHT)
async def test_killed_clients_leave_nothing_of_their_permits_and_relays(api: AdminStage) -> None:
    jam = await jammed(api.stage)
    queued, relayed = await queued_for_heap(api.stage), await api.stage.relayed()
    connections = len(api.stage.broker.connections)
    for client in (relayed, queued, jam.b, jam.a):
        name = "{}:{}".format(*client.sock.getsockname())
        (row,) = [row for row in await api.rows() if row["client"] == name]
        killed = await api.ask("DELETE", f"/v1/connections/{row['id']}")
        assert (killed.status, killed.document["client"]) == (200, name)
        await api.is_gone(row["id"])
        assert (await api.ask("DELETE", f"/v1/connections/{row['id']}")).status == 404
    await relayed.rest()
    await eventually(lambda: len(api.stage.broker.connections) < connections, "the broker's side of the relay gone")
    # Those it held up go on; the reader's memory is free.
    await jam.c.answer()
    await jam.d.answer()
    stage = api.stage
    await stage.until(lambda: not stage.heap.held and not stage.direct.held, "all memory given back")
    assert stage.caused("admin") == 4
    # Events are made a moment after what they tell of.
    await stage.until(lambda: any(event["outcome"] == "cancelled" for event in stage.events.kept), "the event")
    assert {event["close_cause"] for event in stage.events.kept if event["outcome"] == "cancelled"} == {"admin"}
    lines = api.log.of("admin change")
    assert [(line["action"], line["cause"]) for line in lines] == [("kill", "admin")] * 4


# --- what is wrong with a request -----------------------------------------------------------------


WRONG: list[tuple[str, str, object, int, str]] = [
    ("GET", "/", None, 404, "GET /v1 lists all"),
    ("POST", "/v1/top", None, 405, "this path has GET only"),
    ("GET", "/v1/reload", None, 405, "this path has POST only"),
    ("GET", "/v1/../v1/top", None, 400, "without . and .."),
    ("DELETE", "/v1/connections/" + "9" * 40, None, 400, "id: got"),
    ("DELETE", "/v1/connections/77", None, 404, "no connection 77"),
    ("GET", "/v1/connections?limit=0", None, 400, "limit: got '0', expected a whole number from 1 to 10000"),
    ("GET", "/v1/connections?mode=fast", None, 400, "mode: got 'fast', expected one of handshake, lookup, relay"),
    ("GET", "/v1/connections?page=2", None, 400, "got parameter 'page', expected limit, after"),
    ("PUT", "/v1/log-level", None, 400, "level: got nothing"),
    ("PUT", "/v1/log-level", {"level": "loud"}, 400, "level: got 'loud', expected one of debug"),
    ("PUT", "/v1/log-level", {"level": "info", "loud": 1}, 400, "got field 'loud', expected level, seconds"),
    ("PUT", "/v1/log-level", ["info"], 400, "expected a JSON object"),
    ("PUT", "/v1/log-level", {"level": "x" * 5000}, 413, "at most 4096 bytes"),
    ("POST", "/v1/drain", {"at_once": 1}, 400, "at_once: got '1', expected true or false"),
    ("POST", "/v1/drain", None, 503, "not run by `serve`"),
    ("POST", "/v1/profile", None, 400, "seconds: got nothing"),
    ("POST", "/v1/profile", {"seconds": 3600}, 400, f"from 0.1 to {LONGEST_PROFILE_SECONDS:g}"),
    ("POST", "/v1/pause", {"seconds": 0}, 400, "seconds: got '0', expected a number from 0.1 to 86400"),
    ("PUT", "/v1/log-level", {"level": "debug", "component": "admin"}, 400, "expected one of auth, brokers"),
]


async def test_a_wrong_request_gets_one_clear_error(api: AdminStage) -> None:
    for method, target, body, status, reason in WRONG:
        answered = await api.ask(method, target, body)
        assert (answered.status, answered.headers["content-type"]) == (status, "application/json"), target
        assert reason in answered.document["reason"]
    assert not api.stage.proxy.sessions.accepting.paused


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
        b"PUT /v1/log-level HTTP/1.1\r\nHost: a\r\nContent-Length: 4000\r\n\r\n" + b"[" * 4000,
    ],
)
async def test_garbage_ends_in_an_error_or_a_cut_and_costs_nobody_anything(
    api: AdminStage, request_bytes: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        # For the garbage alone: what is asked behind it may take its time.
        patch.setattr(slots, "REQUEST_SECONDS", 0.3)
        answer = await raw(api.path, request_bytes)
    assert answer == b"" or answer.split(b" ", 2)[1].startswith(b"4")
    await api.nobody_asks()
    assert (await api.get("/v1/top"))["proxy"]["state"] == "serving"
    assert not counted_by(api.stage.proxy.counters, "internal_errors")


@pytest.mark.threat("rude-admin-clients")
@pytest.mark.parametrize("turns_later", range(4))
async def test_who_is_cut_while_it_is_taken_in_holds_no_place(
    api: AdminStage, turns_later: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    await api.get("/v1/top")
    loop, take_in = asyncio.get_running_loop(), AdminServer.connection

    def cut_after(turns: int, slot: AdminSlot) -> None:
        if turns:
            loop.call_soon(cut_after, turns - 1, slot)
        else:
            slot.end()

    def taken_in(server: AdminServer, slot: AdminSlot) -> AdminConnection:
        # Its time is over now, between the accept and the moment when a transport owns the socket, or a little later.
        cut_after(turns_later, slot)
        return take_in(server, slot)

    with monkeypatch.context() as patch:
        patch.setattr(AdminServer, "connection", taken_in)
        assert await raw(api.path, b"GET /v1/top HTTP/1.1\r\nX: ") == b""
    await api.nobody_asks()
    assert (await api.get("/v1/top"))["proxy"]["state"] == "serving"


@pytest.mark.threat("rude-admin-clients")
async def test_the_silent_and_the_stuck_are_cut_and_hold_no_place(
    api: AdminStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slots, "REQUEST_SECONDS", 0.3)
    monkeypatch.setattr(slots, "ANSWER_SECONDS", 0.3)
    admin = api.stage.proxy.admin
    monkeypatch.setattr(api.stage.proxy, "shown", lambda: {"much": "x" * 8_000_000})
    with ExitStack() as held:
        ends = select.poll()
        for request in (b"", b"GET /v1", GET_TOP):
            sock = held.enter_context(socket.socket(socket.AF_UNIX))
            sock.connect(str(api.path))
            sock.sendall(request)
            # The end is seen without a read, which would help the stuck one.
            ends.register(sock, select.POLLRDHUP)
        await eventually(lambda: len(ends.poll(0)) == 3, "all cut")
        await eventually(lambda: not len(admin), "no place held")


@keys(at_address=True)
async def test_a_list_that_nobody_reads_is_made_no_further_than_its_memory_goes_and_is_cut(
    api: AdminStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slots, "REQUEST_SECONDS", 3600.0)
    monkeypatch.setattr(slots, "ANSWER_SECONDS", patient(0.3))
    begun, made, ended = set[int](), Counter[int](), set[int]()
    asking, begin_clock = list[AdminSlot](), AdminSlot.request_received

    def endless(_: ListViews, asked: Mapping[str, object]) -> Rows:
        number = int(str(asked["limit"]))

        def rows() -> Iterator[Sequence[Row]]:
            begun.add(number)
            try:
                while True:
                    # As long as a row gets: names are cut at 200 characters.
                    yield [{"owner": "\u00e9" * LONGEST_NAME, "namespace": "n" * LONGEST_NAME}] * SLICE_ROWS
                    made[number] += SLICE_ROWS * 3 * LONGEST_NAME
            finally:
                ended.add(number)

        return Rows({}, "waiters", rows())

    def without_clock(slot: AdminSlot) -> None:
        asking.append(slot)

    monkeypatch.setattr(ListViews, "queue", endless)
    port = api.stage.proxy.admin_port
    await api.get("/v1")
    # The clock of an answer waits until all have begun, however slow the machine is.
    monkeypatch.setattr(AdminSlot, "request_received", without_clock)
    with ExitStack() as held:
        for number in range(1, 2 * MOST_CONNECTIONS + 1):
            local = number <= MOST_CONNECTIONS
            sock = held.enter_context(socket.socket(socket.AF_UNIX if local else socket.AF_INET))
            sock.connect(str(api.path) if local else ("127.0.0.1", port))
            target = f"GET /v1/queue?limit={number} HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {TOKEN}"
            sock.sendall(f"{target}\r\n\r\n".encode())
        await eventually(lambda: len(begun) == 2 * MOST_CONNECTIONS, "all begun")
        for slot in asking:
            begin_clock(slot)
        # Not at the next look of the garbage collector: what it holds is free when it is cut.
        await eventually(lambda: len(ended) == 2 * MOST_CONNECTIONS, "all cut")
    # What the other end's kernel has taken from one at the address is not the proxy's.
    most_bytes = max(made[number] for number in range(1, MOST_CONNECTIONS + 1))
    assert 0 < most_bytes <= ADMIN_CLIENT_BYTES - REFERENCES_BYTES


@pytest.mark.threat("rude-admin-clients")
async def test_of_a_hundred_at_once_a_few_are_answered_and_the_others_told_so(
    api: AdminStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting: list[int] = []

    async def held(*_: object) -> Any:
        waiting.append(1)
        await asyncio.Event().wait()

    monkeypatch.setattr(ProcessActions, "reload", held)
    await api.get("/v1")
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


async def test_an_answer_that_fails_ends_its_exchange_alone(api: AdminStage, monkeypatch: pytest.MonkeyPatch) -> None:

    def broken(_: object) -> Any:
        raise RuntimeError("no numbers")

    monkeypatch.setattr("proxy.app.top_document.limiters", broken)
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
@keys(at_address=True)
async def test_at_its_address_nothing_is_served_without_the_token_or_to_web_pages(
    api: AdminStage, headers: dict[str, str], status: int
) -> None:
    port = api.stage.proxy.admin_port
    answered = await ask(port, "DELETE", "/v1/connections/7", headers=headers)
    assert answered.status == status
    assert TOKEN not in json.dumps(answered.document)
    if status == 401:
        assert answered.headers["www-authenticate"] == "Bearer"


@keys(at_address=True)
async def test_a_new_token_needs_no_restart_and_a_lost_one_lets_nobody_in(api: AdminStage, tmp_path: Path) -> None:
    port, client = api.stage.proxy.admin_port, await api.stage.connected()
    headers = {"Authorization": f"Bearer {TOKEN}"}
    (row,) = (await ask(port, "GET", "/v1/connections", headers=headers)).document["connections"]
    (tmp_path / "token").write_text("another-word-of-some-length")
    assert (await ask(port, "GET", "/v1/top", headers=headers)).status == 401
    by_cli = AdminClient(address=f"127.0.0.1:{port}", token="another-word-of-some-length")
    await asyncio.to_thread(by_cli.ask, "DELETE", f"/v1/connections/{row['id']}")
    await client.rest()
    (line,) = api.log.of("admin change")
    assert line["who"].startswith("token, from 127.0.0.1:")
    (tmp_path / "token").unlink()
    assert (await ask(port, "GET", "/v1/top", headers=headers)).status == 503


# --- levels of parts of the log, and profiles ------------------------------------------------------


@keys(logLevelByComponent="net=error")
async def test_one_part_of_the_log_says_more_for_a_while(api: AdminStage) -> None:
    body = {"level": "debug", "component": "clients", "seconds": 600}
    document = (await api.ask("PUT", "/v1/log-level", body)).document
    assert document["level"] == "info"
    assert {name: level["level"] for name, level in document["components"].items()} == {
        "net": "error", "clients": "debug",
    }  # fmt: skip
    (await api.stage.connected()).close()
    await api.stage.until(lambda: api.log.of("client disconnected"), "the end of a client, told at debug level")
    [line] = api.log.of("client disconnected")
    assert (line["level"], line["component"]) == ("debug", "clients")
    [change] = api.log.of("admin change")
    assert (change["component"], change["old"], change["new"]) == ("clients", "info", "debug")
    # Until the next reload: the key has the level then.
    body = {"level": "warning", "component": "clients"}
    document = (await api.ask("PUT", "/v1/log-level", body)).document
    assert document["components"]["clients"] == {"level": "warning", "configured": "warning", "seconds_left": None}
    assert api.stage.proxy.config.component_levels == {"net": "error", "clients": "warning"}
    api.stage.change(logLevelByComponent="")
    assert api.stage.proxy.log.of("clients").level == "info"


async def test_a_profile_shows_the_event_loop_while_clients_are_served(
    api: AdminStage, capsys: pytest.CaptureFixture[str]
) -> None:
    client = await api.stage.connected()
    seconds = round(patient(0.5), 1)
    command = ["admin", "profile", "--seconds", str(seconds), "--socket", str(api.path)]
    profiled = asyncio.get_running_loop().create_task(asyncio.to_thread(main, command))
    lists = 0
    while not profiled.done():
        await client.topics(namespace(lists % 20))
        lists += 1
        # Nearly every look finds this test at work, however few looks a busy machine has time for.
        until = monotonic() + 0.05
        while monotonic() < until:
            pass
    assert await profiled == 0
    out = capsys.readouterr().out
    assert "thread MainThread" in out
    assert "test_a_profile_shows_the_event_loop" in out
    [change] = api.log.of("admin change")
    assert (change["action"], change["seconds"]) == ("profile", seconds)


@pytest.mark.threat("endless-profiles")
async def test_one_profile_at_a_time_and_a_client_that_leaves_ends_its_own(api: AdminStage) -> None:
    first = asyncio.get_running_loop().create_task(api.ask("POST", "/v1/profile", {"seconds": LONGEST_PROFILE_SECONDS}))
    await api.stage.until(lambda: api.log.of("admin change"), "the first profile")
    second = await api.ask("POST", "/v1/profile", {"seconds": 0.1})
    assert (second.status, "another profile is being made" in second.document["reason"]) == (409, True)
    first.cancel()
    await asyncio.wait([first])

    async def third() -> Answered:
        while (answered := await api.ask("POST", "/v1/profile", {"seconds": 0.1})).status == 409:
            pass
        return answered

    answered = await third()
    assert (answered.status, answered.document["seconds"] < 10) == (200, True)


# --- silent connections at the address: the operator is served, from whatever address -------------

ELSEWHERE = "127.0.0.2"


@asynccontextmanager
async def operated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[AdminStage]:
    async with admin_staged(tmp_path, monkeypatch, at_address=True) as api:
        # The libraries are imported for the first client: until then nobody is silent.
        assert (await by_token(api)).status == 200
        await api.nobody_asks()
        yield api


async def by_token(api: AdminStage) -> Answered:
    return await ask(api.stage.proxy.admin_port, "GET", "/v1/top", headers={"Authorization": f"Bearer {TOKEN}"})


async def all_held(api: AdminStage) -> None:
    await eventually(lambda: len(api.stage.proxy.admin) == MOST_CONNECTIONS, "all slots held")


# Connections of the own address give way after a while, which is over at once here; those of others need none.
@pytest.mark.threat("silent-admin-connections")
@pytest.mark.parametrize(("source", "silent_seconds"), [(ELSEWHERE, 60.0), (LOOPBACK, 0.0)])
async def test_silent_connections_give_way_to_the_operator(
    source: str, silent_seconds: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slots, "SILENT_SECONDS", silent_seconds)
    # None ends by its own clock: nobody would take its place.
    monkeypatch.setattr(slots, "REQUEST_SECONDS", 3600.0)
    async with operated(tmp_path, monkeypatch) as api:
        with ExitStack() as held:

            async def silent() -> asyncio.StreamReader:
                reader, writer = await connect(api.stage.proxy.admin_port, source)
                held.callback(writer.close)
                return reader

            readers = [await silent() for _ in range(MOST_CONNECTIONS)]
            for number in range(MOST_CONNECTIONS):
                await all_held(api)
                assert (await by_token(api)).status == 200
                # The oldest was ended for the operator.
                assert await rest_of(readers[number]) == b""
                readers.append(await silent())


async def rest_of(reader: asyncio.StreamReader) -> bytes:
    """Return what comes until the other side ends or resets a connection."""
    with suppress(ConnectionError):
        async with in_time():
            return await reader.read()
    return b""
