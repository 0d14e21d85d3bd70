"""Whether an advice held, and drift as metrics; both are pure."""

import re
import socket
from datetime import UTC, date, datetime
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from pipeline.core.errors import PipelineError
from pipeline.core.held import held
from pipeline.store.drift import PREFIX, exposition, push, refuse_gateway, write_metrics
from tests.support.web.answering import answering

MIB = 2**20
ROOT = Path(__file__).parents[3]
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


def test_drift_has_a_line_for_what_is_known() -> None:
    text = exposition(CALIBRATION, ADVICE, None, held(ADVICE, [day(6, refused=500)]), 1e9)
    assert f"{PREFIX}calibration_error 0.05\n" in text
    assert f'{PREFIX}advised_limit_bytes{{memory="direct"}} {16.0 * MIB}\n' in text
    assert f"{PREFIX}advice_held 0.0\n" in text
    assert "limit_in_force" not in text
    assert "advice_held" not in exposition(CALIBRATION, ADVICE, None, held(ADVICE, []), 1e9)


def test_alerts_go_by_metrics_that_are_written() -> None:
    written = exposition(CALIBRATION, ADVICE, ADVICE, held(ADVICE, [day(6)]), 1e9)
    asked = set(re.findall(rf"{PREFIX}\w+", (ROOT / "deploy/pipeline/alerts.yaml").read_text()))
    assert asked
    assert asked <= set(re.findall(rf"^({PREFIX}\w+)", written, re.MULTILINE))


def test_file_of_metrics_is_replaced_whole_and_a_fault_names_the_option(tmp_path: Path) -> None:
    path = tmp_path / "drift.prom"
    path.write_text("old")
    write_metrics(path, "new\n")
    assert path.read_text() == "new\n"
    assert [found.name for found in tmp_path.iterdir()] == ["drift.prom"]
    with pytest.raises(PipelineError, match="--metrics-file"):
        write_metrics(tmp_path / "none" / "drift.prom", "new")


def test_pushgateway_takes_the_metrics_of_each_cluster_in_place_of_those_of_before() -> None:
    with answering() as gateway:
        push(f"{gateway.url}/", "a 1\n")
        push(gateway.url, "a 1\n", "east 1")
    place = "/metrics/job/pulsar-proxy-pipeline"
    assert [each[:2] for each in gateway.asked] == [("PUT", place), ("PUT", f"{place}/cluster/east%201")]
    assert {each.headers["Content-Type"] for each in gateway.asked} == {"text/plain; version=0.0.4"}
    assert gateway.asked[0].body == b"a 1\n"
    with pytest.raises(PipelineError, match="--pushgateway"):
        push(gateway.url, "a 1\n")


def test_what_speaks_no_http_did_not_take_the_metrics() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            client, _ = server.accept()
            with client:
                client.recv(1 << 16)
                client.sendall(b"220 no web here\r\n")

        thread = Thread(target=answer)
        thread.start()
        with pytest.raises(PipelineError, match="--pushgateway"):
            push(f"http://127.0.0.1:{server.getsockname()[1]}", "a 1\n")
        thread.join()


@pytest.mark.parametrize("url", ["gateway/", "http://gate way:9091", "ftp://gateway"])
def test_what_is_no_url_of_a_pushgateway_is_refused_before_the_jobs(url: str) -> None:
    with pytest.raises(PipelineError, match="--pushgateway: got"):
        refuse_gateway(url)
    refuse_gateway("http://gateway:9091/")
