"""The job `ingest`: event files or a topic, checked, into the tables `events` and `quarantine`."""

import argparse
import sys

from pipeline.core.errors import ExitCode, PipelineError
from pipeline.core.options import add_common
from pipeline.core.paths import refuse_unwritable
from pipeline.ingest import settings as told
from pipeline.ingest.health import StreamHealth
from pipeline.ingest.stream import follow
from pipeline.running.session import at_work
from pipeline.running.stopping import set_by_sigterm
from pipeline.sources.pulsar import require_topic


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the job."""
    add_common(parser)
    told.add_arguments(parser)


def run(options: argparse.Namespace) -> int:
    """Run the job and say what became of the input; raises PipelineError. SIGTERM ends it after its batch."""
    settings, stop = told.ingest_settings(options), set_by_sigterm()
    if settings.topic is not None:
        # Without Spark, for a cluster that is away.
        require_topic(settings.topic)
    if options.checkpoint:
        refuse_unwritable("--checkpoint", options.checkpoint)
    health = StreamHealth()
    with at_work("ingest", settings.common) as spark:
        if options.metrics_port is not None:
            health.serve(options.metrics_port)
        counts = follow(spark, settings, say, stop, health)
    print(f"ingest: {counts}")
    if stop.is_set() and settings.trigger_us is None:
        raise PipelineError("told to stop before all was read: run again", ExitCode.FAILED)
    return ExitCode.OK


def say(text: str) -> None:
    """Say on standard error what became of a batch."""
    print(f"ingest: {text}", file=sys.stderr, flush=True)
