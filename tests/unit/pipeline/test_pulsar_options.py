"""What a user may say about a topic, and that no secret is among what Spark shows of it."""

import argparse
import base64
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from pipeline.core.errors import ExitCode, PipelineError
from pipeline.sources.pulsar.credentials import authentication, header_source, secret
from pipeline.sources.pulsar.errors import DataLossError, TopicError, explain
from pipeline.sources.pulsar.options import PulsarSettings, add_arguments, from_spark, settings, split_source, to_spark

NO_ADMIN_URLS = ("a:8080", "http://", "http://a:x", "http://a,b", "http://a?b", "http://[a")
SOURCE = "pulsar://a:6650,b:6650/tenant/ns/topic"


def read(*words: str, source: str = SOURCE) -> PulsarSettings:
    parser = argparse.ArgumentParser()
    parser.add_argument("--source")
    add_arguments(parser)
    return settings(parser.parse_args(["--source", source, *words]))


def test_source_is_a_service_url_and_a_topic() -> None:
    assert split_source(SOURCE) == ("pulsar://a:6650,b:6650", "persistent://tenant/ns/topic")
    assert split_source("pulsar+ssl://a/t/n/x") == ("pulsar+ssl://a", "persistent://t/n/x")


@pytest.mark.parametrize(
    "source",
    [
        *("pulsar://a/t/n", "pulsar:///t/n/x", "http://a/t/n/x", "pulsar://a/t/n/x/y"),
        *("pulsar://a/t/n/x?y", "pulsar://a:0/t/n/x", "pulsar://[::1/t/n/x"),
    ],
)
def test_source_that_names_no_topic_is_refused(source: str) -> None:
    with pytest.raises(PipelineError, match=r"--source: got .*, expected pulsar://HOST:PORT/TENANT/NAMESPACE/TOPIC"):
        split_source(source)


def test_secrets_in_urls_are_refused() -> None:
    with pytest.raises(PipelineError, match="--source: got a URL with a user in it"):
        read(source="pulsar://user:secret@a/t/n/x")
    with pytest.raises(PipelineError, match="--admin-url: got a URL with a user in it"):
        read("--admin-url", "http://user:secret@a")
    # A password with a slash looks like a port that is none.
    with pytest.raises(PipelineError, match=r"got 'pulsar://\.\.\.@a/t/n/x'") as error:
        read(source="pulsar://user:sec/ret@a/t/n/x")
    assert "sec/ret" not in str(error.value)


def test_settings_survive_the_way_to_spark_whose_options_are_in_lower_case() -> None:
    given = read(
        *("--admin-url", "https://a:8443/", "--max-events", "7", "--on-data-loss", "warn", "--read-timeout", "5"),
        *("--auth", "token", "--auth-file", "/some/File", "--tls-trust", "ca.pem", "--no-tls-hostname-check"),
    )
    assert given.admin_url == "https://a:8443"
    assert from_spark({name.lower(): value for name, value in to_spark(given).items()}) == given


def test_time_to_start_from_is_utc_unless_it_says_otherwise() -> None:
    assert read("--start", "1970-01-01T00:00:01").start == "1000"
    assert read("--start", "1970-01-01T01:00:01+01:00").start == "1000"
    assert read("--start", "latest").start == "latest"
    with pytest.raises(PipelineError, match="--start: got 'noon', expected earliest, latest, or a time"):
        read("--start", "noon")


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["--max-events", "5"], "--max-events: got no --admin-url"),
        (["--max-events", "-1"], "--max-events: got -1, expected a number from 0"),
        (["--read-timeout", "0"], "--read-timeout: got 0, expected a number from 1"),
        (["--receiver-queue", "0"], "--receiver-queue: got 0"),
        *((["--admin-url", url], "--admin-url: got .*, expected http://HOST:PORT") for url in NO_ADMIN_URLS),
        (["--start", "1969-12-31"], "--start: got '1969-12-31', expected a time after 1970"),
        (["--auth", "token"], "--auth token: expected one of --auth-file and --auth-env, got 0"),
        (["--auth", "basic", "--auth-file", "f", "--auth-env", "E"], "--auth basic: expected one of .*, got 2"),
        (["--auth", "tls"], "--auth tls: expected --tls-certificate and --tls-key"),
        (["--tls-key", "k"], "--tls-certificate and --tls-key: got one of them, expected both"),
        (["--auth-file", "f"], "--auth none: takes no --auth-file"),
    ],
)
def test_options_that_make_no_sense_are_refused(words: list[str], problem: str) -> None:
    with pytest.raises(PipelineError, match=problem) as error:
        read(*words)
    assert error.value.code == ExitCode.USAGE


def test_secret_is_read_anew_each_time(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("one\n")
    headers = header_source(read("--auth", "token", "--auth-file", str(file)))
    assert headers() == {"Authorization": "Bearer one"}
    file.write_text("two\n")
    assert headers() == {"Authorization": "Bearer two"}


def test_secret_may_be_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    given = read("--auth", "basic", "--auth-env", "PULSAR_LOGIN")
    with pytest.raises(TopicError, match="--auth-env: the environment has no variable PULSAR_LOGIN"):
        secret(given)
    monkeypatch.setenv("PULSAR_LOGIN", "alice:pass:word")
    encoded = base64.b64encode(b"alice:pass:word").decode()
    assert header_source(given)() == {"Authorization": f"Basic {encoded}"}
    assert "pass" not in json.dumps(to_spark(given))


def refused(use: Callable[[PulsarSettings], object], given: PulsarSettings) -> str:
    try:
        found = use(given)
        if callable(found):
            found()
    except TopicError as error:
        return str(error)
    raise AssertionError("expected an error")


def test_error_about_a_secret_does_not_tell_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PULSAR_LOGIN", "hunter2")
    for kind in ("basic", "oauth2"):
        given = read("--auth", kind, "--auth-env", "PULSAR_LOGIN")
        for use in (authentication, header_source):
            assert "hunter2" not in refused(use, given)


def test_error_of_ours_is_found_in_the_traceback_that_spark_brings() -> None:
    text = (
        "[STREAM_FAILED] Query [id = 1] terminated with exception: Traceback (most recent call last):\n"
        '  File "x.py", line 1, in latestOffset\n'
        "pipeline.sources.pulsar.errors.DataLossError: topic: events after 5:2 are gone\n SQLSTATE: 38000"
    )
    found = explain(RuntimeError(text))
    assert isinstance(found, DataLossError)
    assert (str(found), found.code) == ("topic: events after 5:2 are gone", ExitCode.DATA_LOSS)


def test_error_of_others_is_not_explained() -> None:
    assert explain(RuntimeError("pipeline.sources is mentioned")) is None
    ours = PipelineError("x")
    assert explain(ours) is ours
