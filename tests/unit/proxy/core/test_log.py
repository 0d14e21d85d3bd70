import ast
import io
import json
import logging
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.config.keys.log_components import COMPONENTS
from proxy.config.keys.log_components import LEVELS as LEVEL_NAMES
from proxy.core.log import FIELDS, LEVELS, LineRate, adopt_stdlib_logging, open_log

ROOT = Path(__file__).resolve().parents[4]
NOON = datetime(2026, 1, 2, 12, 0, 0, 5000, UTC)
HOSTILE = 'x\n{"level":"error"}\r\x1b[31m\x7f\x85\u2028\u2029'


class Written:
    def __init__(self, level: str = "info", log_format: str = "json") -> None:
        self.file = io.BytesIO()
        self.log = open_log(level, log_format, self.file, lambda: NOON)

    def text(self) -> str:
        return self.file.getvalue().decode()

    def last(self) -> dict[str, object]:
        event: dict[str, object] = json.loads(self.text().split("\n")[-2])
        return event


def test_an_event_is_one_json_object_in_a_fixed_order() -> None:
    written = Written()
    written.log.info("listening", port=6650)
    assert written.text() == (
        '{"time":"2026-01-02T12:00:00.005+00:00","level":"info","port":6650,"event":"listening"}\n'
    )


def test_an_event_is_one_readable_line_on_a_console() -> None:
    written = Written(log_format="console")
    written.log.warning("broker refused", broker="a:1", detail="not today", reason="")
    assert written.text() == '12:00:00.005 warning broker refused broker=a:1 detail="not today" reason=""\n'


def test_the_level_changes_at_run_time_for_all_that_share_it() -> None:
    written = Written()
    bound = written.log.bind(client="c")
    bound.debug("hidden")
    written.log.set_level("debug")
    bound.debug("shown")
    assert (written.last()["event"], written.last()["client"], bound.level) == ("shown", "c", "debug")
    written.log.set_level("error")
    bound.warning("hidden")
    assert written.text().count("\n") == 1
    with pytest.raises(KeyError):
        written.log.set_level("loud")


@pytest.mark.parametrize("level", LEVELS)
def test_exactly_the_levels_from_the_threshold_on_are_written(level: str) -> None:
    written = Written(level)
    for name in LEVELS:
        getattr(written.log, name)("event")
    assert [json.loads(line)["level"] for line in written.text().splitlines()] == [
        name for name, number in LEVELS.items() if number >= LEVELS[level]
    ]


@pytest.mark.threat("log-injection")
@pytest.mark.parametrize("log_format", ["json", "console"])
def test_control_characters_cannot_forge_a_line(log_format: str) -> None:
    written = Written(log_format=log_format)
    written.log.info(HOSTILE, topic=HOSTILE, namespace=HOSTILE.encode(), detail=[HOSTILE])
    assert len(written.text().splitlines()) == 1
    assert written.text()[:-1].isprintable()


@given(st.one_of(st.text(), st.binary(), st.integers(), st.floats(), st.none(), st.lists(st.text())))
def test_whatever_is_logged_is_one_line(value: object) -> None:
    for log_format in ("json", "console"):
        written = Written(log_format=log_format)
        written.log.info("event", detail=value)
        assert len(written.text().splitlines()) == 1
        if log_format == "json":
            assert written.last()["event"] == "event"


@pytest.mark.parametrize("value", ["\ud800", 1 << 70, {1: "\ud800"}, object()])
def test_values_that_orjson_refuses_are_written_all_the_same(value: object) -> None:
    written = Written()
    written.log.info("event", detail=value)
    assert written.last()["event"] == "event"


def test_a_long_value_is_cut_and_says_so() -> None:
    written = Written()
    holders = [("n" * 1_000_000, 7), ("m", 8)]
    written.log.info("event", client_version="v" * 1_000_000, detail=b"b" * 5000, top_holders=holders)
    assert len(written.text()) < 8000
    assert str(written.last()["client_version"]).endswith("v... (1000000 in all)")
    assert str(written.last()["detail"]).endswith("b... (5000 in all)")
    assert str(written.last()["top_holders"]).endswith("n... (2 items)")


@pytest.mark.parametrize("log_format", ["json", "console"])
def test_a_traceback_is_part_of_its_event(log_format: str) -> None:
    written = Written(log_format=log_format)
    try:
        raise ValueError(HOSTILE)
    except ValueError as error:
        written.log.error("relay failed", exc_info=error)
    if log_format == "json":
        assert "ValueError" in str(written.last()["exception"])
        assert len(written.text().splitlines()) == 1
    else:
        first, *rest = written.text().splitlines()
        assert first.endswith("relay failed")
        assert len(rest) > 3
        assert all(line.startswith("    | ") for line in rest)


@pytest.fixture
def root_logger() -> Iterator[logging.Logger]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield root
    root.handlers[:] = handlers
    root.setLevel(level)


def test_lines_of_libraries_take_the_same_form(root_logger: logging.Logger) -> None:
    written = Written()
    adopt_stdlib_logging(written.log)
    logging.getLogger("asyncio").info("not shown")
    logging.getLogger("asyncio").error("task %s failed\n", "x", exc_info=KeyError("y"))
    assert len(written.text().splitlines()) == 1
    event = written.last()
    assert (event["level"], event["logger"], event["event"]) == ("error", "asyncio", "task x failed\n")
    assert "KeyError" in str(event["exception"])
    logging.getLogger("aiohttp").warning("careful")
    assert written.last()["level"] == "warning"
    assert len(root_logger.handlers) == 1


def log_calls(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield line and name of each keyword given to a method of something called `log`."""
    methods = {*LEVELS, "bind"}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        owner = node.func.value
        name = owner.attr if isinstance(owner, ast.Attribute) else getattr(owner, "id", "")
        if node.func.attr in methods and name.lstrip("_") in {"log", "logger"}:
            yield from ((keyword.value.lineno, keyword.arg) for keyword in node.keywords if keyword.arg)


def test_every_field_in_use_is_in_the_table() -> None:
    strange = [
        f"{path.relative_to(ROOT)}:{line}: {name}"
        for path in sorted((ROOT / "proxy").rglob("*.py"))
        for line, name in log_calls(ast.parse(path.read_text()))
        if name not in FIELDS and name != "exc_info"
    ]
    assert not strange, "add the field to proxy.log.FIELDS or use one that is there"


TOKEN = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhbGljZSJ9.c2lnbmF0dXJl"


@pytest.mark.threat("exception-quotes-secret")
@pytest.mark.parametrize("log_format", ["json", "console"])
@pytest.mark.parametrize("text", [f"no key {TOKEN} fits", f"Authorization: Bearer {TOKEN}", f"token:{TOKEN}", TOKEN])
def test_a_traceback_tells_no_token_that_the_exception_quotes(log_format: str, text: str) -> None:
    written = Written(log_format=log_format)
    try:
        raise ValueError(text)
    except ValueError as error:
        written.log.error("unexpected error", detail=f"ValueError: {error}", exc_info=error)
    assert "ValueError" in written.text()
    assert "(hidden)" in written.text()
    for part in TOKEN.split("."):
        assert part not in written.text()


# --- components -------------------------------------------------------------------------------------


def test_a_component_names_itself_and_has_the_level_of_the_rest_until_it_has_its_own() -> None:
    file = io.BytesIO()
    log = open_log("info", "json", file)
    brokers, web = log.of("brokers"), log.of("web")
    brokers.debug("a")
    brokers.set_level("debug")
    brokers.debug("b")
    web.debug("c")
    log.set_level("error")
    brokers.info("d")
    web.warning("e")
    log.warning("f")
    brokers.set_level("")
    brokers.warning("g")
    log.set_level("debug")
    web.debug("h", seconds=1)
    lines = [json.loads(line) for line in file.getvalue().splitlines()]
    assert [(line["event"], line["component"]) for line in lines] == [("b", "brokers"), ("d", "brokers"), ("h", "web")]
    assert (log.level, brokers.level) == ("debug", "debug")


@pytest.mark.threat("hidden-change")
def test_no_component_is_made_up() -> None:
    used = [
        text for path in (ROOT / "proxy").rglob("*.py") for text in re.findall(r'log\.of\("(\w+)"\)', path.read_text())
    ]
    assert set(used) == set(COMPONENTS)
    assert tuple(LEVELS) == LEVEL_NAMES
    # What operators change is in the main log, which a component's level cannot hide.
    assert "admin" not in COMPONENTS


def test_a_line_rate_counts_what_it_leaves_out() -> None:
    rate = LineRate(2)
    assert [rate.due(now) for now in (1.0, 1.5, 1.9, 2.0)] == [True, True, False, True]
    assert (rate.take_left_out(), rate.take_left_out()) == (1, 0)
