"""Whether an advice held, and drift as metrics; both are pure."""

from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest

from pipeline.core.errors import PipelineError
from pipeline.core.held import held
from pipeline.store.drift import PREFIX, drift_metrics, push, refuse_gateway, write_metrics
from tests.support.web.answering import answering

MIB = 2**20
ADVICE: dict[str, Any] = {
    "last_us": int(datetime(2026, 1, 5, 13, tzinfo=UTC).timestamp() * 1e6),
    "cluster": None,
    "heap_limit_bytes": 64 * MIB,
    "direct_limit_bytes": 16 * MIB,
    "max_refused": 0.01,
    "promised_wait_us": 250_000.0,
}
CALIBRATION = {"error": 0.05, "imputed_share": 0.125, "late_p99_us": 20_000.0}


def day(number: int, refused: int = 0, wait_us: float = 100_000, **named: Any) -> dict[str, Any]:
    limits = {name: ADVICE[name] for name in ("heap_limit_bytes", "direct_limit_bytes")}
    made = {"date": date(2026, 1, number), "cluster": "east", "requests": 1000, "refused": refused}
    return made | limits | {"wait_p99_us": wait_us} | named


def test_advice_is_judged_by_the_days_with_its_limits_from_its_last_event_on() -> None:
    found = held(ADVICE, [day(4, 900), day(5), day(6, 10), day(7, heap_limit_bytes=MIB, refused=900), day(6)])
    assert (found.days, found.requests, found.refused, found.kept) == (2, 3000, 10, True)
    assert found.verdict == "held"


@pytest.mark.parametrize("bad", [day(6, refused=21), day(6, wait_us=250_001)])
def test_refusals_and_the_worst_day_break_the_promise(bad: dict[str, Any]) -> None:
    found = held(ADVICE, [day(5), bad])
    assert not found.kept
    assert found.verdict == "did not hold"


def test_advice_of_a_cluster_is_not_judged_by_another() -> None:
    assert held(ADVICE | {"cluster": "west"}, [day(6)]).days == 0
    assert held(ADVICE | {"cluster": "east"}, [day(6)]).days == 1


def test_drift_has_a_sample_for_what_is_known() -> None:
    found = drift_metrics(CALIBRATION, ADVICE, None, held(ADVICE, [day(6, refused=500)]), "east")
    east = {"cluster": "east"}
    assert found.get_sample_value(f"{PREFIX}calibration_error", east) == 0.05
    assert found.get_sample_value(f"{PREFIX}advised_limit_bytes", east | {"memory": "direct"}) == 16 * MIB
    assert found.get_sample_value(f"{PREFIX}advice_held", east) == 0
    assert found.get_sample_value(f"{PREFIX}limit_in_force_bytes", east | {"memory": "heap"}) is None
    unused = drift_metrics(CALIBRATION, ADVICE, None, held(ADVICE, []), "east")
    assert unused.get_sample_value(f"{PREFIX}advice_held", east) is None


def test_metrics_are_a_file_for_the_textfile_collector_and_a_fault_names_the_option(tmp_path: Path) -> None:
    path = tmp_path / "drift.prom"
    path.write_text("old")
    found = drift_metrics(CALIBRATION | {"error": None}, None, None, None, None)
    write_metrics(str(path), found)
    assert f'{PREFIX}calibration_error{{cluster=""}} +Inf' in path.read_text().splitlines()
    assert [each.name for each in tmp_path.iterdir()] == ["drift.prom"]
    with pytest.raises(PipelineError, match="--metrics-file"):
        write_metrics(str(tmp_path / "none" / "drift.prom"), found)


def test_pushgateway_takes_the_metrics_of_each_cluster_in_place_of_those_of_before() -> None:
    found = drift_metrics(CALIBRATION, None, None, None, None)
    with answering() as gateway:
        push(f"{gateway.url}/", found, None)
        push(gateway.url, found, "east")
    place = "/metrics/job/pulsar-proxy-pipeline"
    assert [each[:2] for each in gateway.asked] == [("PUT", place), ("PUT", f"{place}/cluster/east")]
    assert f"{PREFIX}calibration_error".encode() in gateway.asked[0].body
    with pytest.raises(PipelineError, match="--pushgateway"):
        push(gateway.url, found, None)


@pytest.mark.parametrize("url", ["gateway/", "http://gate way:9091", "ftp://gateway"])
def test_what_is_no_url_of_a_pushgateway_is_refused_before_the_jobs(url: str) -> None:
    with pytest.raises(PipelineError, match="--pushgateway: got"):
        refuse_gateway(url)
    refuse_gateway("http://gateway:9091/")
