"""What `ingest` is told: the source, batch or stream, and what a stream goes by."""

import argparse
import re
from dataclasses import dataclass
from typing import Final, Literal

from pipeline.errors import PipelineError
from pipeline.options import CommonSettings, common_settings
from pipeline.sources.pulsar import options as pulsar

__all__ = ["IngestSettings", "Mode", "add_arguments", "ingest_settings", "micros"]

Mode = Literal["batch", "once", "continuous"]
UNITS_US: Final = {"ms": 1_000, "s": 1_000_000, "m": 60_000_000, "h": 3_600_000_000, "d": 86_400_000_000}


@dataclass(frozen=True, slots=True)
class IngestSettings:
    """One ingest; times are microseconds."""

    common: CommonSettings
    source: str
    mode: Mode = "batch"
    checkpoint: str = ""
    trigger_us: int = 10_000_000
    late_after_us: int = 86_400_000_000
    max_files: int = 1_000
    max_file_age_us: int = 30 * 86_400_000_000
    on_data_loss: Literal["fail", "warn"] = "fail"
    topic: pulsar.PulsarSettings | None = None


def add_arguments(parser: argparse.ArgumentParser, *, required: bool = True) -> None:
    """Declare what `ingest` is told, without the common options; not `required`: there may be events already."""
    text = "directory of event files, as DIR or files:DIR, or pulsar://..."
    if not required:
        text += "; without it the events are those of the table `events`"
    parser.add_argument("--source", required=required, metavar="URI", help=text)
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--once", action="store_true", help="take what came since the checkpoint, then end")
    how.add_argument("--trigger", metavar="TIME", help="go on taking what comes, so often: 10s, 1m; until SIGTERM")
    parser.add_argument("--checkpoint", metavar="DIR", help="of a stream (default: _checkpoints/ingest under --out)")
    parser.add_argument(
        "--late-after",
        default="1d",
        metavar="TIME",
        help="a stream quarantines events older than the newest by more (default: %(default)s)",
    )
    parser.add_argument("--max-files", type=int, default=1_000, metavar="N", help="of one batch of a stream of files")
    parser.add_argument(
        "--max-file-age",
        default="30d",
        metavar="TIME",
        help="a stream remembers the files of this time, and passes by older ones (default: %(default)s)",
    )
    pulsar.add_arguments(parser)


def ingest_settings(options: argparse.Namespace) -> IngestSettings:
    """Take the options; raises PipelineError for what makes no sense."""
    common = common_settings(options)
    if options.max_files < 1:
        raise PipelineError(f"--max-files: got {options.max_files}, expected 1 or more")
    mode: Mode = "once" if options.once else "continuous" if options.trigger else "batch"
    return IngestSettings(
        common=common,
        source=options.source.removeprefix("files:"),
        mode=mode,
        checkpoint=options.checkpoint or f"{common.out}/_checkpoints/ingest",
        trigger_us=micros("--trigger", options.trigger or "10s"),
        late_after_us=micros("--late-after", options.late_after),
        max_files=options.max_files,
        max_file_age_us=micros("--max-file-age", options.max_file_age),
        on_data_loss=options.on_data_loss,
        topic=pulsar.settings(options) if options.source.startswith(pulsar.SCHEMES) else None,
    )


def micros(option: str, text: str) -> int:
    """Read a time like `10s` or `1.5h`; raises PipelineError."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)", text.strip())
    if found is None:
        raise PipelineError(f"{option}: got {text!r}, expected a time like 500ms, 10s, 5m, 2h or 1d")
    return round(float(found[1]) * UNITS_US[found[2]])
