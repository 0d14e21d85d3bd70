"""Keys of overload control that cannot be right are refused together, with what to write instead."""

import pytest

from tests.support.configured import configured, refusal


def faults(**overrides: str) -> dict[str, str]:
    return {problem.key: f"{problem.got}: {problem.expected}" for problem in refusal(**overrides).problems}


def warnings(**overrides: str) -> list[str]:
    found = configured(**overrides).warnings
    return [str(warning) for warning in found if any(word in str(warning) for word in ("overload", "Throttle"))]


def test_marks_in_the_wrong_order_are_all_told_at_once() -> None:
    found = faults(
        overloadMemoryLowWatermark="0.9",
        adaptivePublisherThrottlingMemoryLowWatermarkPct="0.85",
        adaptivePublisherThrottlingBacklogLowWatermarkPct="1",
        adaptivePublisherThrottlingMaxRateChangeFactor="0",
    )
    assert found == {
        "overloadMemoryLowWatermark": "0.9: less than overloadMemoryHighWatermark (0.85)",
        "adaptivePublisherThrottlingMemoryLowWatermarkPct": "0.85: less than "
        "adaptivePublisherThrottlingMemoryHighWatermarkPct (0.85)",
        "adaptivePublisherThrottlingBacklogLowWatermarkPct": "1: less than "
        "adaptivePublisherThrottlingBacklogHighWatermarkPct (0.9)",
        "adaptivePublisherThrottlingMaxRateChangeFactor": "0: more than 0: rates could never change",
    }


@pytest.mark.parametrize(
    ("text", "hint"),
    [("85", "; 85 percent is 0.85"), ("85%", "; 85 percent is 0.85"), ("8500", ""), ("-1", ""), ("a", ""), ("1.5", "")],
)
def test_fraction_above_one_is_refused_with_a_hint(text: str, hint: str) -> None:
    found = faults(adaptivePublisherThrottlingMemoryHighWatermarkPct=text)
    if text == "1.5":
        hint = "; 1.5 percent is 0.015"
    (fault,) = found.values()
    assert fault.endswith("a fraction from 0 to 1, such as 0.85" + hint)


def test_brokers_cannot_be_watched_without_their_address() -> None:
    found = faults(overloadThrottleEnabled="true", overloadSignals="brokers")
    assert "brokerWebServiceURL" in found["overloadSignals"]
    (warning,) = warnings(overloadThrottleEnabled="true")
    assert "brokers are not watched without brokerWebServiceURL" in warning


def test_pause_beyond_the_send_timeout_is_a_warning() -> None:
    keys = {"overloadThrottleEnabled": "true", "overloadSignals": "proxy"}
    assert warnings(**keys, overloadMaxPauseMillis="29999") == []
    (warning,) = warnings(**keys, overloadMaxPauseMillis="30000")
    assert "overloadMaxPauseMillis" in warning
    assert "sendTimeout" in warning


def test_nothing_is_said_while_no_throttle_is_enabled() -> None:
    assert warnings(overloadMaxPauseMillis="60000") == []
    config = configured()
    assert not config.overload_throttle_enabled
    assert not config.adaptive_publisher_throttling_enabled


@pytest.mark.parametrize(("patterns", "warned"), [("!a*,!b", True), ("*,!a*", False), ("", False)])
def test_patterns_that_only_spare_topics_are_a_warning(patterns: str, warned: bool) -> None:
    found = configured(adaptivePublisherThrottlingTopics=patterns).warnings
    assert any("all patterns spare topics" in str(warning) for warning in found) is warned
