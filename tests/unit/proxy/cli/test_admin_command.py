"""`pulsar-proxy admin`: its tables, its exit codes, and what it asks for."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from proxy.auth.failures import SettingFault
from proxy.cli.admin.client import AdminClient, NoAnswer, Refused
from proxy.cli.admin.tables import seconds, size
from proxy.cli.main import main
from proxy.web.admin.access import read_token

ROW: dict[str, Any] = {
    "id": 17, "client": "192.0.2.1:5000", "principal": None, "mode": "lookup", "broker": None, "age_seconds": 61.2,
    "from_client_bytes": 900, "to_client_bytes": 3 * 1024 * 1024, "unsent_bytes": 0, "held_bytes": 120_000,
    "requests": 2, "state": "busy",
}  # fmt: skip
REPORT: dict[str, Any] = {
    "result": "applied", "changed": [{"key": "logLevel", "old": "info", "new": "debug"}], "warnings": ["odd"],
    "needs_restart": [{"key": "servicePort", "old": "6650", "new": "6651"}], "faults": [], "reason": "",
}  # fmt: skip
FAULT = {"file": "proxy.conf", "line": 3, "key": "logLevel", "got": "'x'", "expected": "one of debug"}
Answer = Mapping[str, Any] | Exception


class Command:
    """The command, and a proxy that gives answers by what it is asked."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self.asked: list[tuple[str, Any]] = []
        self.answers: Mapping[str, Answer] = {}
        self._capsys = capsys

    def ask(self, method: str, path: str, body: Any = None, seconds: float = 0) -> Mapping[str, Any]:
        self.asked.append((f"{method} {path}", body))
        whole = f"{method} {path}"
        asked = whole if whole in self.answers else whole.partition("?")[0]
        answer = self.answers[asked]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def __call__(self, *arguments: str) -> tuple[int, str, str]:
        self._capsys.readouterr()
        code = main(["admin", *arguments, "--socket", "/s"])
        return code, *self._capsys.readouterr()


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    found = Command(capsys)
    monkeypatch.setattr(AdminClient, "ask", found.ask)
    return found


def test_all_pages_are_asked_for_and_json_is_one_row_a_line(run: Command) -> None:
    first, second = ("GET /v1/connections?limit=1000&after=0", "GET /v1/connections?limit=1000&after=17")
    run.answers = {
        first: {"connections": [ROW, ROW], "next": 17}, second: {"connections": [ROW], "next": None},
    }  # fmt: skip
    code, out, _ = run("connections", "--json")
    assert (code, [json.loads(line) for line in out.splitlines()]) == (0, [ROW] * 3)
    assert run.asked == [(first, None), (second, None)]


@pytest.mark.parametrize(
    ("what", "document"),
    [
        ("groups", {"total": 120, "groups": []}),
        ("queue", {"lines": {"heap": 100, "direct": 20}, "waiters": []}),
    ],
)
def test_a_listing_that_is_cut_says_of_how_many(what: str, document: Mapping[str, Any], run: Command) -> None:
    run.answers = {f"GET /v1/{what}": document}
    assert run(what)[2].startswith("showing 0 of 120; raise --limit")
    assert run(what, "--json")[2] == ""


def test_a_reload_is_reported_and_one_with_faults_is_exit_code_1(run: Command) -> None:
    run.answers = {"POST /v1/reload": REPORT}
    code, out, err = run("reload")
    assert (code, err) == (0, "warning: odd\n")
    assert out == "changed logLevel: info -> debug\nneeds a restart servicePort: 6650 -> 6651\napplied\n"
    refused = {**REPORT, "result": "refused", "faults": [FAULT], "reason": "configuration refused", "changed": []}
    run.answers = {"POST /v1/reload": Refused(422, refused)}
    code, _, err = run("reload")
    assert code == 1
    assert "error: proxy.conf:3: logLevel: got 'x', expected one of debug\nerror: configuration refused" in err
    assert json.loads(run("reload", "--json")[1]) == refused


@pytest.mark.parametrize(
    ("answer", "code", "error"),
    [
        (NoAnswer("no proxy answers; tried: /s"), 1, "error: no proxy answers; tried: /s\n"),
        (Refused(409, {"reason": "the proxy is stopping already"}), 1, "error: the proxy is stopping already"),
        (Refused(503, {}), 1, "error: status 503\n"),
    ],
)
def test_who_does_not_answer_or_refuses_is_one_line_and_exit_code_1(
    answer: Exception, code: int, error: str, run: Command
) -> None:
    run.answers = {"POST /v1/drain": answer}
    got, out, err = run("drain")
    assert (got, out, err.count("\n")) == (code, "", 1)
    assert err.startswith(error)


@pytest.mark.parametrize(
    "arguments",
    [["kill"], ["kill", "x"], ["kill", "0"], ["nonsense"], ["connections", "--mode", "fast"], ["log-level", "loud"]],
)
def test_wrong_arguments_are_exit_code_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["admin", *arguments])
    assert ended.value.code == 2
    assert capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["--address", "127.0.0.1:1"], "--address: expected --token-file with this option"),
        (["--token-file", "x"], "--token-file: expected --address with this option"),
        (["--address", "127.0.0.1:1", "--token-file", "/no/such"], "--token-file: cannot read /no/such: no such file"),
    ],
)
def test_an_address_goes_with_a_token(arguments: list[str], error: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["admin", "limiters", *arguments]) == 2
    assert capsys.readouterr().err.startswith(f"error: {error}")


def test_nobody_at_an_address_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    token = tmp_path / "token"
    token.write_text("correct-horse-battery-staple\n")
    # A port that nobody can listen on.
    assert main(["admin", "limiters", "--address", "127.0.0.1:0", "--token-file", str(token)]) == 1
    error = capsys.readouterr().err
    assert "tried: 127.0.0.1:0 (" in error
    assert "adminApiAddress" in error
    assert "--socket" not in error


# --- its tables -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("count", "text"),
    [(None, "-"), (0, "0B"), (1023, "1023B"), (1536, "1.5K"), (2**30 * 200, "200G"), (2**62, "4194304T")],
)
def test_sizes_are_short(count: int | None, text: str) -> None:
    assert size(count) == text


@pytest.mark.parametrize(
    ("value", "text"), [(None, "-"), (0.04, "0.0s"), (61, "1m1s"), (7260, "2h1m"), (90_000, "1d1h")]
)
def test_durations_have_two_units(value: float | None, text: str) -> None:
    assert seconds(value) == text


# --- the table of routes --------------------------------------------------------------------------


@pytest.mark.parametrize("content", [b"", b"short", b"two words of a token, long", "sixteen-ümlauts!".encode()])
def test_a_token_that_is_none_is_a_fault_of_its_key_and_not_told(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_bytes(content)
    with pytest.raises(SettingFault) as fault:
        read_token(str(path))
    assert fault.value.key == "adminApiTokenFilePath"
    assert "got" in fault.value.problem
    assert not content or content.decode() not in fault.value.problem


# --- profile, pause, undrain ------------------------------------------------------------------------

PROFILE: dict[str, Any] = {
    "seconds": 5.0, "samples": 500, "left_out": 3,
    "threads": [{"name": "relay-0", "cpu_seconds": 4.5}, {"name": "MainThread", "cpu_seconds": 0.25}],
    "functions": ["main (a.py:1)", "serve; (b.py:2)", "wait (c.py:3)"],
    "stacks": [
        {"thread": "MainThread", "calls": [0, 2], "samples": 300},
        {"thread": "MainThread", "calls": [0, 1], "samples": 100},
        {"thread": "other", "calls": [2], "samples": 400},
    ],
}  # fmt: skip


def test_a_folded_profile_has_a_line_for_each_stack(run: Command) -> None:
    run.answers = {"POST /v1/profile": PROFILE}
    _, out, _ = run("profile", "--folded")
    assert out.splitlines() == [
        "MainThread;main (a.py:1);wait (c.py:3) 300",
        # A semicolon parts calls.
        "MainThread;main (a.py:1);serve: (b.py:2) 100",
        "other;wait (c.py:3) 400",
    ]


def test_a_profile_that_is_too_long_is_refused_before_anybody_is_asked(run: Command) -> None:
    code, _, error = run("profile", "--seconds", "10m")
    assert (code, run.asked) == (2, [])
    assert "--seconds: got 600, expected 0.1 to 20" in error


def test_a_component_needs_a_level(run: Command) -> None:
    own = {"level": "debug", "configured": "", "seconds_left": 60.0}
    answer = {"level": "info", "configured": "info", "seconds_left": None, "components": {"web": own}}
    run.answers = {"PUT /v1/log-level": answer}
    code, out, _ = run("log-level", "debug", "--component", "web", "--for", "60")
    assert (code, out) == (0, "info\nweb: debug for 60 s, then info\n")
    assert run.asked == [("PUT /v1/log-level", {"level": "debug", "seconds": 60.0, "component": "web"})]
    for other in ("--component", "web"), ("--for", "60"):
        assert run("log-level", *other)[0] == 2


def test_an_undone_drain_says_what_the_proxy_does_now(run: Command) -> None:
    run.answers = {"POST /v1/undrain": {"phase": "serving", "connections": 7}}
    assert run("undrain")[:2] == (0, "serving: 7 connections\n")
