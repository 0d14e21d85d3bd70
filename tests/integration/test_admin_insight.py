"""A look into a running proxy by the admin API: levels of parts of the log, and a profile."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from proxy.cli.main import main
from proxy.core.log import open_log
from proxy.web.admin.routes import LONGEST_PROFILE_SECONDS
from tests.support.proxies import proxy_under_test
from tests.support.proxies.proxy_under_test import Stage, namespace, staged
from tests.support.web.admin_api import Answered, ask


class Asked:
    """A stage with a control socket and a log that is kept."""

    def __init__(self, stage: Stage, path: Path, log: BytesIO) -> None:
        self.stage = stage
        self.path = path
        self._log = log

    async def ask(self, method: str, target: str, body: object = None) -> Answered:
        return await ask(self.path, method, target, body)

    def lines(self, event: str) -> list[dict[str, Any]]:
        found = [json.loads(line) for line in self._log.getvalue().splitlines()]
        return [line for line in found if line["event"] == event]


@asynccontextmanager
async def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, **keys: Any) -> AsyncIterator[Asked]:
    log = BytesIO()
    monkeypatch.setattr(proxy_under_test, "_log", lambda: open_log("info", "json", log))
    async with staged(controlSocketPath=tmp_path / "s", **keys) as stage:
        found = Asked(stage, tmp_path / "s", log)
        yield found
        await stage.until(lambda: not len(stage.proxy.admin), "no admin client left")


async def test_one_part_of_the_log_says_more_for_a_while(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with asked(tmp_path, monkeypatch, logLevelByComponent="net=error") as api:
        body = {"level": "debug", "component": "clients", "seconds": 600}
        document = (await api.ask("PUT", "/v1/log-level", body)).document
        assert document["level"] == "info"
        assert {name: level["level"] for name, level in document["components"].items()} == {
            "net": "error", "clients": "debug",
        }  # fmt: skip
        (await api.stage.connected()).close()
        await api.stage.until(lambda: api.lines("client disconnected"), "the end of a client, told at debug level")
        [line] = api.lines("client disconnected")
        assert (line["level"], line["component"]) == ("debug", "clients")
        [change] = api.lines("admin change")
        assert (change["component"], change["old"], change["new"]) == ("clients", "info", "debug")
        # Until the next reload: the key has the level then.
        body = {"level": "warning", "component": "clients"}
        document = (await api.ask("PUT", "/v1/log-level", body)).document
        assert document["components"]["clients"] == {"level": "warning", "configured": "warning", "seconds_left": None}
        assert api.stage.proxy.config.component_levels == {"net": "error", "clients": "warning"}
        api.stage.change(logLevelByComponent="")
        assert api.stage.proxy.log.of("clients").level == "info"


@pytest.mark.parametrize(
    ("target", "body", "status", "reason"),
    [
        ("/v1/profile", None, 400, "seconds: got nothing"),
        ("/v1/profile", {"seconds": 3600}, 400, f"from 0.1 to {LONGEST_PROFILE_SECONDS:g}"),
        ("/v1/pause", {"seconds": 0}, 400, "seconds: got '0', expected a number from 0.1 to 86400"),
        ("/v1/undrain", None, 503, "not run by `serve`"),
    ],
)
async def test_a_wrong_request_gets_one_clear_error(
    target: str, body: object, status: int, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with asked(tmp_path, monkeypatch) as api:
        answered = await api.ask("POST", target, body)
        assert answered.status == status
        assert reason in answered.document["reason"]
        assert not api.stage.proxy.sessions.accepting.paused


async def test_no_part_of_the_log_is_made_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with asked(tmp_path, monkeypatch) as api:
        answered = await api.ask("PUT", "/v1/log-level", {"level": "debug", "component": "admin"})
        assert (answered.status, "expected one of auth, brokers" in answered.document["reason"]) == (400, True)


async def test_a_profile_shows_the_event_loop_while_clients_are_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async with asked(tmp_path, monkeypatch) as api:
        client = await api.stage.connected()
        command = ["admin", "profile", "--seconds", "0.5", "--socket", str(api.path)]
        profiled = asyncio.get_running_loop().create_task(asyncio.to_thread(main, command))
        lists = 0
        while not profiled.done():
            await client.topics(namespace(lists % 20))
            lists += 1
        assert await profiled == 0
        out = capsys.readouterr().out
        assert "thread MainThread" in out
        assert "test_a_profile_shows_the_event_loop" in out
        [change] = api.lines("admin change")
        assert (change["action"], change["seconds"]) == ("profile", 0.5)


@pytest.mark.threat("endless-profiles")
async def test_one_profile_at_a_time_and_a_client_that_leaves_ends_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with asked(tmp_path, monkeypatch) as api:
        first = asyncio.get_running_loop().create_task(
            api.ask("POST", "/v1/profile", {"seconds": LONGEST_PROFILE_SECONDS})
        )
        await api.stage.until(lambda: api.lines("admin change"), "the first profile")
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
