"""A log level that returns by itself, in virtual time."""

import io

import pytest

from proxy.core.log import Logger, open_log
from proxy.core.log_level import LONGEST_SECONDS, LogLevel
from tests.support.loops.clock import ManualClock


class Timers(ManualClock):
    def call_later(self, delay: float, callback: object, /) -> "object":
        return self.call_at(self.time() + delay, callback)  # type: ignore[arg-type]


def made(configured: str = "info") -> tuple[LogLevel, Logger, Timers]:
    log, timers = open_log(configured, "json", io.BytesIO()), Timers()
    return LogLevel(log, timers, configured), log, timers  # type: ignore[arg-type]


def test_it_returns_by_itself_to_the_configured_level() -> None:
    level, log, timers = made()
    level.set_for("debug", 60.0)
    timers.advance(59.9)
    assert log.level == "debug"
    assert level.seconds_left == pytest.approx(0.1)
    timers.advance(0.1)
    assert (log.level, level.seconds_left) == ("info", None)


def test_a_second_one_counts_from_its_own_beginning() -> None:
    level, log, timers = made()
    level.set_for("debug", 60.0)
    timers.advance(50.0)
    level.set_for("warning", 60.0)
    timers.advance(50.0)
    assert log.level == "warning"
    timers.advance(10.0)
    assert log.level == "info"
    assert not timers.pending


def test_a_reload_meanwhile_decides_what_it_returns_to() -> None:
    level, log, timers = made()
    level.set_for("debug", 60.0)
    level.configure("error")
    assert log.level == "debug"
    timers.advance(60.0)
    assert log.level == "error"
    level.configure("warning")
    assert log.level == "warning"


def test_it_can_be_ended_before_and_leaves_no_timer() -> None:
    level, log, timers = made()
    level.set_for("debug", 60.0)
    level.end()
    level.end()
    assert (log.level, timers.pending) == ("info", 0)


@pytest.mark.parametrize(
    ("name", "seconds"),
    [("loud", 1.0), ("debug", 0.0), ("debug", -1.0), ("debug", float("nan")), ("debug", LONGEST_SECONDS + 1)],
)
def test_what_is_no_level_or_no_time_changes_nothing(name: str, seconds: float) -> None:
    level, log, timers = made()
    with pytest.raises(ValueError, match="expected"):
        level.set_for(name, seconds)
    assert (log.level, timers.pending) == ("info", 0)
