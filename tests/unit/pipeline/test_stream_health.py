"""The health of a stream, as Prometheus gets it from the port of `ingest --metrics-port`."""

import time
import urllib.request

import pytest

from pipeline.core.errors import PipelineError
from pipeline.ingest.health import StreamHealth
from pipeline.ingest.write import IngestCounts
from tests.support.sockets.ports import free_port

PREFIX = "pulsar_proxy_pipeline_ingest_"


def sample(health: StreamHealth, name: str, **labels: str) -> float:
    found = health.registry.get_sample_value(f"{PREFIX}{name}", labels)
    assert found is not None
    return found


def test_lag_is_the_age_of_the_newest_event_while_there_is_more_to_take() -> None:
    health = StreamHealth()
    health.look(waiting=True)
    assert sample(health, "lag_seconds") > 0, "a first batch that does not end is behind, too"
    minute_ago_us = int((time.time() - 60) * 1e6)
    health.took(IngestCounts(1, 1, newest_us=minute_ago_us), 1.0)
    health.took(IngestCounts(1, 1, newest_us=1), 1.0)
    health.look(waiting=True)
    assert 60 <= sample(health, "lag_seconds") < 3600
    health.look(waiting=False)
    assert sample(health, "lag_seconds") == 0


def test_rows_are_counted_by_what_became_of_them() -> None:
    health = StreamHealth()
    health.took(IngestCounts(10, 6, 1, {"malformed": 2, "bad_value": 1}), 2.0)
    health.took(IngestCounts(4, 4), 1.0)
    found = [sample(health, "rows_total", result=name) for name in ("kept", "duplicate", "quarantined")]
    assert found == [10, 1, 3]
    assert sample(health, "rows_per_second") == 4
    assert sample(health, "last_batch_timestamp_seconds") > 1e9


def test_port_answers_with_the_metrics_and_one_that_is_taken_is_an_error() -> None:
    port = free_port()
    StreamHealth().serve(port)
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
        assert f"{PREFIX}rows_total" in answer.read().decode()
    with pytest.raises(PipelineError, match=f"--metrics-port {port}: "):
        StreamHealth().serve(port)
