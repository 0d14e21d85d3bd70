"""What a user may say about a topic, and how an error comes back from Spark's processes."""

import argparse
import json

import pytest

from pipeline.core.errors import ExitCode, PipelineError
from pipeline.sources.pulsar.errors import DataLossError, explain
from pipeline.sources.pulsar.options import PulsarSettings, add_arguments, from_spark, settings, split_source, to_spark

SOURCE = "pulsar://a:6650,b:6650/tenant/ns/topic"
ADMIN = ("--admin-url", "http://a:8080")


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
    ["pulsar://a/t/n", "pulsar:///t/n/x", "http://a/t/n/x", "pulsar://a/t/n/x/y", "pulsar://a/t/n/x?y"],
)
def test_source_that_names_no_topic_is_refused(source: str) -> None:
    with pytest.raises(PipelineError, match=r"--source: got .*, expected pulsar://HOST:PORT/TENANT/NAMESPACE/TOPIC"):
        split_source(source)


@pytest.mark.parametrize("source", ["pulsar://user:secret@a/t/n/x", "pulsar://user:sec/ret@a/t/n/x"])
def test_secret_in_a_source_is_refused_and_not_told(source: str) -> None:
    with pytest.raises(PipelineError, match=r"--source: got 'pulsar://\.\.\.@a/t/n/x'"):
        split_source(source)


def test_settings_survive_the_way_to_spark() -> None:
    given = read(
        *("--admin-url", "https://a:8443/x", "--max-entries", "7", "--on-data-loss", "warn"),
        *("--auth-file", "/some/File", "--tls-trust", "ca.pem", "--no-tls-hostname-check"),
    )
    assert from_spark(json.loads(json.dumps(to_spark(given)))) == given


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ([], "--admin-url: got none, expected http://HOST:PORT"),
        *(
            (["--admin-url", url], "--admin-url: got .*, expected http://")
            for url in ("a:8080", "http://", "http://a?b")
        ),
        (["--admin-url", "http://user:secret@a"], r"--admin-url: got 'http://\.\.\.@a', expected"),
        ([*ADMIN, "--max-entries", "0"], "--max-entries: got 0, expected a number from 1"),
        ([*ADMIN, "--tls-key", "k"], "--tls-certificate and --tls-key: got one of them, expected both"),
    ],
)
def test_options_that_make_no_sense_are_refused(words: list[str], problem: str) -> None:
    with pytest.raises(PipelineError, match=problem) as error:
        read(*words)
    assert error.value.code == ExitCode.USAGE


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
