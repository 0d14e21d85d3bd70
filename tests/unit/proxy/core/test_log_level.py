"""A log level that returns by itself, in virtual time."""

import pytest

from proxy.core.log import Logger
from proxy.core.log_level import LONGEST_SECONDS, LogLevel, LogLevels
from tests.support.log_lines import LogLines
from tests.support.loops.clock import ManualClock


def made(configured: str = "info") -> tuple[LogLevel, Logger, ManualClock]:
    log, clock = LogLines(configured).log, ManualClock()
    return LogLevel(log, clock, configured), log, clock


def test_a_second_one_counts_from_its_own_beginning() -> None:
    level, log, clock = made()
    level.set_for("debug", 60.0)
    clock.advance(50.0)
    level.set_for("warning", 60.0)
    clock.advance(50.0)
    assert log.level == "warning"
    clock.advance(10.0)
    assert log.level == "info"
    assert not clock.pending


def test_a_reload_meanwhile_decides_what_it_returns_to() -> None:
    level, log, clock = made()
    level.set_for("debug", 60.0)
    level.configure("error")
    assert log.level == "debug"
    clock.advance(60.0)
    assert log.level == "error"
    level.configure("warning")
    assert log.level == "warning"


def test_it_can_be_ended_before_and_leaves_no_timer() -> None:
    level, log, clock = made()
    level.set_for("debug", 60.0)
    level.end()
    level.end()
    assert (log.level, clock.pending) == ("info", 0)


@pytest.mark.parametrize(
    ("name", "seconds"),
    [("loud", 1.0), ("debug", 0.0), ("debug", -1.0), ("debug", float("nan")), ("debug", LONGEST_SECONDS + 1)],
)
def test_what_is_no_level_or_no_time_changes_nothing(name: str, seconds: float) -> None:
    level, log, clock = made()
    with pytest.raises(ValueError, match="expected"):
        level.set_for(name, seconds)
    assert (log.level, clock.pending) == ("info", 0)


def test_a_component_returns_to_its_own_level_or_to_that_of_the_rest() -> None:
    log, clock = LogLines().log, ManualClock()
    levels = LogLevels(log, clock, ("net", "web"), "info", {"web": "warning"})
    assert (log.of("web").level, log.of("net").level) == ("warning", "info")
    levels.of("web").set_for("debug", 60.0)
    levels.of("net").set_for("debug", 60.0)
    levels.configure("error", {"web": "warning"})
    assert (log.level, log.of("web").level, log.of("net").level) == ("error", "debug", "debug")
    clock.advance(60.0)
    assert (log.of("web").level, log.of("net").level) == ("warning", "error")
    levels.configure("info", {})
    assert log.of("web").level == "info"
