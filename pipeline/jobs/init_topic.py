"""The job `init-topic`: a topic for the event log that does not lose events. Needs no Spark."""

import argparse
from typing import Final

from eventlog.topic_admin import topic_name
from pipeline.core.errors import ExitCode, PipelineError
from pipeline.core.options import add_number
from pipeline.sources.pulsar.keeping import WantedTopic, init_topic
from pipeline.sources.pulsar.options import add_connection, connection

_MINUTES: Final = 60
_FOR_EVER: Final = -1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the job."""
    parser.add_argument(
        "--topic", required=True, metavar="TOPIC", help="as in eventLogTopic: persistent://TENANT/NAMESPACE/TOPIC"
    )
    add_number(parser, "--partitions", 4, "N", "of the topic; 0: none")
    add_number(parser, "--retention-hours", 168, "H", "how long events stay, read or not; -1: for ever")
    add_number(parser, "--retention-mb", _FOR_EVER, "MB", "how many megabytes of each partition stay; -1: all")
    parser.add_argument(
        "--level",
        choices=("namespace", "topic"),
        default="namespace",
        help="what is to keep messages: all topics of the namespace, or this one (default: %(default)s)",
    )
    add_connection(parser)


def run(options: argparse.Namespace) -> int:
    """Run the job; raises PipelineError."""
    try:
        topic = str(topic_name(options.topic))
    except ValueError as error:
        raise PipelineError(f"--topic: {error}") from None
    if not options.admin_url:
        raise PipelineError("--admin-url: expected the admin interface, as http://HOST:8080")
    if options.partitions < 0:
        raise PipelineError(f"--partitions: got {options.partitions}, expected a number from 0")
    hours = _kept("--retention-hours", options.retention_hours)
    wanted = WantedTopic(
        options.partitions,
        hours * _MINUTES if hours > 0 else hours,
        _kept("--retention-mb", options.retention_mb),
        options.level,
    )
    init_topic(connection(options, "", topic), wanted, print)
    return ExitCode.OK


def _kept(option: str, value: int) -> int:
    if value == 0 or value < _FOR_EVER:
        raise PipelineError(f"{option}: got {value}, expected a number from 1, or -1")
    return value
