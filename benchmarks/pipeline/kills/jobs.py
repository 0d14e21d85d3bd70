"""The jobs that are killed, in an order in which each finds what it needs where an earlier one has ended.

Words may name `{tables}`, `{parquet}` (directories of the store), `{source}`, `{more}` (of event files) and `{files}`
(of this machine).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = ["JOBS", "Job"]

PARQUET: Final = ("--out={parquet}", "--format=parquet")
PROMISED: Final = "--p99-wait-ms=60000"
PAGE: Final = ("--to={files}/report.html", "--conf-file={files}/advice.conf")


@dataclass(frozen=True, slots=True)
class Job:
    """A job: its words, after whose end it begins, and what is run before.

    `killed` are the words of the run that is killed, where they are others. A job that `stays` writes one file and no
    table: a part of the time says when it is killed.
    """

    words: tuple[str, ...]
    after: str = ""
    before: tuple[tuple[str, ...], ...] = ()
    killed: tuple[str, ...] = ()
    stays: bool = False


STREAM: Final = ("usage", "--stream")
JOBS: Final[dict[str, Job]] = {
    "ingest": Job(("ingest", "--source={source}")),
    "ingest --once": Job(("ingest", "--source={source}", "--once", "--max-files=1")),
    "usage": Job(("usage",), "ingest"),
    "usage --stream": Job(STREAM, "ingest --once", killed=(*STREAM, "--trigger=1s", "--refresh=1s")),
    "storms": Job(("storms",), "usage"),
    "whatif": Job(("whatif", "--load=1", "--heap-mb=64,256", "--direct-mb=64,256", PROMISED), "storms"),
    "advise": Job(("advise", "--load=1", PROMISED, "--conf-file={files}/advice.conf"), "whatif"),
    "report": Job(("report", *PAGE), "advise", stays=True),
    # Files of two ingests, and two parts to add up.
    "compact": Job(("compact",), "usage --stream", before=(("ingest", "--source={more}", "--once"), STREAM)),
    "convert": Job(
        ("convert", "--tables={parquet}"), before=(("ingest", "--source={source}", *PARQUET), ("usage", *PARQUET))
    ),
}
