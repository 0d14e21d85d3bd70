"""The command `pulsar-proxy-pipeline`: one job for each subcommand, the same words under spark-submit and in Helm.

Rule: a job is imported only when it is run, so that `--help` needs no JVM. Exit codes are those of `ExitCode`.
"""

import argparse
import re
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Final

from pipeline.core.errors import ExitCode, PipelineError

JOBS: Final[dict[str, str]] = {
    "ingest": "read events from files or a topic, check them, and write the table `events`",
    "usage": "say who costs how much: by tenant, namespace, principal, client version and window",
    "storms": "find bursts of arrivals: how large, who, how long until everybody was served",
    "whatif": "replay recorded arrivals under other limits, loads and fleet sizes",
    "advise": "choose the smallest limits that hold a target, as a fragment of proxy.conf",
    "report": "write one HTML page with everything",
    "run": "ingest, usage, storms, whatif, advise and report, in one session",
    "compact": "merge small files, and delete what is older than the retention",
}

# Spark's name for a file that was there when a query was planned.
REMOVED: Final = "FAILED_READ_FILE.FILE_NOT_EXIST"
# Spark's words about any other file that it cannot read.
UNREAD: Final = re.compile(r"Encountered error while reading file (\S+?)\.?\s")
# Hadoop's message about a URI whose beginning it does not know.
NO_FILE_SYSTEM: Final = re.compile(r"No FileSystem for scheme \"?([^\s\"]+)")
# Hadoop's message about a file system whose jar is not there.
NO_JAR: Final = re.compile(r"Class (\S+\.\w*FileSystem\w*) not found")
# Messages of Java, Hadoop and S3 about what may not be read or written, with the path where there is one.
DENIED: Final = re.compile(
    r"(\S+) \(Permission denied\)|Mkdirs failed to create (\S+)|AccessDeniedException: (/\S+)"
    r"|Permission denied|Access ?Denied"
)
NO_SPACE: Final = "No space left on device"
# The packages of this distribution that a job imports: without one of them the installation is broken.
_OWN: Final = ("eventlog", "pipeline")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one job and return its exit code."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    try:
        options = _parser(given[:1]).parse_args(given)
        code: int = options.run(options)
        return code
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return ExitCode.FAILED
    except Exception as error:
        said = error if isinstance(error, PipelineError) else _explained(error)
        if said is None:
            raise
        print(f"pulsar-proxy-pipeline {given[0]}: {said}", file=sys.stderr)
        return said.code


def _explained(error: Exception) -> PipelineError | None:
    """Translate an error of Spark into one of ours, where the user can do something about it; None for any other."""
    text = str(error)
    if REMOVED in text:
        return PipelineError("a file was deleted while it was read: run again", ExitCode.FAILED)
    if unknown := NO_FILE_SYSTEM.search(text):
        return PipelineError(
            f"got a URI that begins with {unknown[1]}:, expected a directory or a file system that Spark has here"
            " (--source, --out, --checkpoint)"
        )
    if absent := NO_JAR.search(text):
        return PipelineError(
            f"found no {absent[1]}, expected the jar of that file system beside Spark's: put it into a directory and"
            " set PIPELINE_JARS=<directory>, or give spark-submit --jars",
            ExitCode.FAILED,
        )
    if NO_SPACE in text:
        return PipelineError(
            "no space left on a disk, expected some for --out, --checkpoint and what Spark keeps aside"
            " (SPARK_LOCAL_DIRS)",
            ExitCode.FAILED,
        )
    denied = DENIED.search(text)
    if denied or isinstance(error, PermissionError):
        named = denied.groups() if denied else (getattr(error, "filename", None),)
        of = "".join(f" for {path}" for path in named if path)
        return PipelineError(f"got no permission{of}, expected to read --source, and to write --out and --checkpoint")
    if unread := UNREAD.search(text):
        return PipelineError(
            f"{unread[1]} cannot be read whole: run again, and if it is damaged, move it away (pulsar-proxy"
            " recover-events copies what is sound)",
            ExitCode.FAILED,
        )
    return None


def _parser(job: Sequence[str]) -> argparse.ArgumentParser:
    """Make the parser; only the job that is asked for is imported, and brings its options; raises PipelineError."""
    parser = argparse.ArgumentParser(prog="pulsar-proxy-pipeline", description="what the proxy's event log tells")
    jobs = parser.add_subparsers(required=True, metavar="JOB", dest="job")
    for name, text in JOBS.items():
        command = jobs.add_parser(name, help=text, description=text)
        if name in job:
            try:
                module = import_module(f"pipeline.jobs.{name.replace('-', '_')}")
            except ModuleNotFoundError as error:
                # As in the image of the proxy.
                library = (error.name or "").partition(".")[0]
                if library in ("", *_OWN):
                    raise
                raise PipelineError(f"{library} is not installed: this job needs the extra `pipeline`") from error
            module.add_arguments(command)
            command.set_defaults(run=module.run)
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
