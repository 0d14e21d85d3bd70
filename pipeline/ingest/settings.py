"""Settings of `ingest`: the source, and how much of it is taken when."""

import argparse
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from pipeline.core.errors import PipelineError
from pipeline.core.options import CommonSettings, common_settings
from pipeline.sources.pulsar import options as pulsar

# Names that no file system has: those of topics and clusters with a word too few, too many, or in other letters.
NO_FILES: Final = re.compile(r"(pulsar(\+ssl)?|(non-)?persistent|https?):/", re.IGNORECASE)
LEAST_US: Final = 1_000
MOST_US: Final = 36_500 * 86_400_000_000
# Options that have an effect on files only.
OF_FILES: Final = ("max_files",)
UNITS_US: Final = {"ms": 1_000, "s": 1_000_000, "m": 60_000_000, "h": 3_600_000_000, "d": 86_400_000_000}


@dataclass(frozen=True, slots=True)
class IngestSettings:
    """The settings of an ingest: without a trigger it takes what there is, and ends; times are microseconds."""

    common: CommonSettings
    source: str
    checkpoint: str = ""
    trigger_us: int | None = None
    max_files: int = 1_000
    most_quarantined: float | None = None
    topic: pulsar.PulsarSettings | None = None


def add_source(parser: argparse.ArgumentParser, text: str, *, required: bool) -> None:
    """Declare where events come from, and how many of them may be none."""
    parser.add_argument("--source", required=required, metavar="URI", help=text)
    text = "fail if more of the rows that are new were no events (exit code 6); a retry reads them again"
    parser.add_argument("--fail-if-quarantined", type=float, metavar="PERCENT", help=text)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what `ingest` is told, without the common options."""
    add_source(parser, "directory of event files, as DIR or files:DIR, or pulsar://...", required=True)
    parser.add_argument("--trigger", metavar="TIME", help="go on taking what comes, so often: 10s, 1m; until SIGTERM")
    text = "how far it has come (default: _checkpoints/files or _checkpoints/topic under --out)"
    parser.add_argument("--checkpoint", metavar="DIR", help=text)
    parser.add_argument("--max-files", type=int, default=1_000, metavar="N", help="of one batch (default: %(default)s)")
    text = "serve lag, rows a second, what was quarantined and the time of the last batch to Prometheus"
    parser.add_argument("--metrics-port", type=int, metavar="PORT", help=text)
    pulsar.add_arguments(parser)


def ingest_settings(options: argparse.Namespace) -> IngestSettings:
    """Take the options; raises PipelineError for what makes no sense."""
    common = common_settings(options)
    if options.max_files < 1:
        raise PipelineError(f"--max-files: got {options.max_files}, expected 1 or more")
    is_topic = options.source.startswith(pulsar.SCHEMES)
    source = options.source if is_topic else _directory(options.source)
    topic = pulsar.settings(options) if is_topic else None
    _refuse_idle(options, is_topic=is_topic)
    if options.trigger is not None and options.fail_if_quarantined is not None:
        raise PipelineError(
            "--fail-if-quarantined: got it with --trigger, which has no end, expected one of them; --metrics-port tells"
            " of a stream"
        )
    return IngestSettings(
        common=common,
        source=source,
        checkpoint=options.checkpoint or _checkpoint(common, "topic" if is_topic else "files"),
        trigger_us=None if options.trigger is None else micros("--trigger", options.trigger, LEAST_US),
        max_files=options.max_files,
        most_quarantined=_most_quarantined(options),
        topic=topic,
    )


def file_settings(common: CommonSettings, options: argparse.Namespace) -> IngestSettings | None:
    """Return the settings for all event files of a directory that are new, None for none; raises PipelineError."""
    most = _most_quarantined(options)
    if options.source is None:
        if most is not None:
            raise PipelineError("--fail-if-quarantined: got no --source, expected one: it judges what a run has read")
        return None
    if options.source.startswith(pulsar.SCHEMES):
        raise PipelineError("--source: got a topic, expected DIR: read it with `ingest`, then run without --source")
    source = _directory(options.source)
    return IngestSettings(common, source, _checkpoint(common, "files"), most_quarantined=most)


def _most_quarantined(options: argparse.Namespace) -> float | None:
    percent: float | None = options.fail_if_quarantined
    if percent is not None and not 0 <= percent < 100:
        raise PipelineError(f"--fail-if-quarantined: got {percent:g}, expected a percentage from 0, below 100")
    return percent


def _checkpoint(common: CommonSettings, name: str) -> str:
    return f"{common.out}/_checkpoints/{name}"


def _directory(source: str) -> str:
    """Take a source that is no topic; raises PipelineError for what is no place of files."""
    place = source.removeprefix("files:")
    if not place.strip() or NO_FILES.match(place):
        raise PipelineError(
            f"--source: got {pulsar.without_user(source)!r}, expected DIR, files:DIR or"
            " pulsar://HOST:PORT/TENANT/NAMESPACE/TOPIC"
        )
    return place


def _refuse_idle(options: argparse.Namespace, *, is_topic: bool) -> None:
    idle = {
        "--source names files, and these are for topics": () if is_topic else pulsar.OF_TOPICS,
        "--source names a topic, and these are for files": OF_FILES if is_topic else (),
    }
    _refuse_given(options, idle)


def _refuse_given(options: argparse.Namespace, idle: Mapping[str, tuple[str, ...]]) -> None:
    """Refuse options that would change nothing: a user who gives one expects something of it."""
    usual = argparse.ArgumentParser()
    add_arguments(usual)
    given = [
        name for name, value in vars(options).items() if value not in (None, "") and value != usual.get_default(name)
    ]
    for why, names in idle.items():
        if found := [f"--{name.replace('_', '-')}" for name in given if name in names]:
            raise PipelineError(f"{', '.join(found)}: {why}: expected none of them")


def micros(option: str, text: str, least_us: int = 0) -> int:
    """Read a time like `10s` or `1.5h`; raises PipelineError."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)", text.strip(), re.ASCII)
    if found is None:
        raise PipelineError(f"{option}: got {text!r}, expected a time like 500ms, 10s, 5m, 2h or 1d")
    micros = round(float(found[1]) * UNITS_US[found[2]]) if len(text) < 20 else MOST_US + 1
    if not least_us <= micros <= MOST_US:
        raise PipelineError(f"{option}: got {text!r}, expected {least_us / 1_000:g}ms or more, and 36500d or less")
    return micros
