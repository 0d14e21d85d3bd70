"""The job `ingest`: event files or a topic, checked, into the tables `events` and `quarantine`."""

import argparse
from threading import Event

from pipeline.core.errors import ExitCode
from pipeline.core.options import add_common
from pipeline.ingest import ingest
from pipeline.ingest import settings as told
from pipeline.running.progress import at_work
from pipeline.running.stopping import set_by_sigterm


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the job."""
    add_common(parser)
    told.add_arguments(parser)


def run(options: argparse.Namespace) -> int:
    """Run the job and say what became of the input; raises PipelineError. SIGTERM ends a stream after its batch."""
    settings = told.ingest_settings(options)
    stop = Event() if settings.mode == "batch" else set_by_sigterm()
    with at_work("ingest", settings.common, quiet=settings.mode != "batch") as spark:
        print(f"ingest: {ingest(spark, settings, stop=stop)}")
    return ExitCode.OK
