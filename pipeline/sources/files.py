"""Event files: `*.jsonl.gz` and `*.jsonl` of the proxy, `*.parquet` of `generate`, as a batch and as a stream of names.

Rule: hidden files are not finished and are skipped. A path is the one that it says: nothing in it is a pattern. Spark's
own reader takes the lines; only when it fails are the files looked at one by one, and the damaged ones read by
`pipeline.sources.salvage`, as are those whose names Spark cannot open, and those with a line that would take more
memory than anybody has set aside for it: of mounted files, those that are large enough for one are looked through. A
stream is one of file names, so that its batches are read by the same function as a directory.
"""

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from io import BytesIO
from pathlib import Path
from typing import BinaryIO, Final

import pandas as pd
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from eventlog.schema import FIELDS
from pipeline.core.errors import ExitCode, PipelineError
from pipeline.core.paths import PATTERN_SIGNS, escaped
from pipeline.core.schema import event_schema
from pipeline.sources.salvage import COMPRESSED_BYTES, MAX_LINE_BYTES, has_long_line, is_whole, lines_of
from pipeline.store.hadoop import exists
from pipeline.transforms.events import from_columns, from_lines

# Options with which event files are listed.
LISTED: Final = {"recursiveFileLookup": "true", "pathGlobFilter": "*.{jsonl,jsonl.gz,parquet}"}
# The whole row is declared, as a stream demands; the content is never asked for, so that no file is opened.
FILE: Final = "path string, modificationTime timestamp, length bigint, content binary"
# Lines as they are read, with the file that each is of.
LINES: Final = "value string, source string, damaged boolean"
# The most that a task that reads by hand has in memory: so many lines, or so many bytes and one line.
LINES_A_BATCH: Final = 10_000
BYTES_A_BATCH: Final = MAX_LINE_BYTES
GONE: Final = (
    "event files were deleted before they were read: ingest more often, have the proxy keep more"
    " (eventLogFilesMaxTotalMB), or go on without them (--on-data-loss warn)"
)
# A warning names so many files.
MOST_NAMED: Final = 3
# Spark gives the path as a URI. In a query a plus sign means a space, in a path it is itself.
DECODED: Final = "regexp_replace(url_decode(replace({}, '+', '%2B')), '^file:/+', '/')"
SOURCE: Final = DECODED.format("_metadata.file_path")
# The note of Spark in a checkpoint about each file that a stream has read; the time is in milliseconds since 1970.
NOTED: Final = "path string, timestamp bigint"
# Spark takes paths for patterns. For one path Spark can be told not to; of several it reads some twice then, so that
# there, and in streams, the signs of a pattern are escaped.
EXACT: Final = {"__globPaths__": "false"}
# Spark's words for a file that is damaged, or gone.
SIGNS: Final = ("FAILED_READ_FILE", "PATH_NOT_FOUND", "FileNotFoundException")


@dataclass(frozen=True, slots=True)
class EventFile:
    """A finished file and its size."""

    path: str
    bytes: int


def find(spark: SparkSession, directory: str) -> list[EventFile]:
    """List the event files of a directory, or the one file; raises PipelineError if there are none."""
    _require_there(spark, directory)
    files = spark.read.format("binaryFile").options(**LISTED, **EXACT).load(directory)
    rows = files.select("path", "length").orderBy("path").collect()
    if not rows:
        raise PipelineError(f"--source {directory}: found no event files, expected *.jsonl.gz, *.jsonl or *.parquet")
    return [EventFile(row.path, row.length) for row in rows]


def names(
    spark: SparkSession, directory: str, max_files: int, max_file_age: str, *, skip_gone: bool = False
) -> DataFrame:
    """Return a stream of the paths of event files as they come, in the order of their age; raises PipelineError."""
    _require_there(spark, directory)
    if _is_unescapable(directory):
        raise PipelineError(
            f"--source {directory}: got a colon beside one of []{{}}*?\\, which a stream cannot read: rename the"
            " directory, or read it as a batch (without --once and --trigger)"
        )
    reader = spark.readStream.format("binaryFile").schema(FILE).options(**LISTED, ignoreMissingFiles=skip_gone)
    reader = reader.options(maxFilesPerTrigger=max_files, maxFileAge=max_file_age)
    return reader.load(escaped(directory)).select("path")


def passed_by(spark: SparkSession, directory: str, checkpoint: str, max_file_age_us: int) -> int:
    """Count the files that a stream takes for read though it never did: they came too long after their time.

    Too long is what `names` was told, from the newest file that the stream has read; none is counted before the first.
    """
    try:
        noted = spark.read.schema(NOTED).options(**EXACT).json(f"{checkpoint}/sources/0").where("path IS NOT NULL")
    except AnalysisException:
        # There was no batch yet.
        return 0
    newest_ms = noted.agg(F.max("timestamp")).collect()[0][0]
    if newest_ms is None:
        return 0
    files = spark.read.format("binaryFile").options(**LISTED, **EXACT).load(directory)
    old = files.where(F.unix_millis("modificationTime") < newest_ms - max_file_age_us // 1000)
    read = noted.select(F.expr(DECODED.format("path")).alias("name"))
    return old.select(F.expr(SOURCE).alias("name")).join(read, "name", "left_anti").count()


def paths_of(batch: DataFrame) -> tuple[str, ...]:
    """Return the paths of a batch of `names`; raises PipelineError if a file of it is gone."""
    try:
        return tuple(sorted(row.path for row in batch.collect()))
    except Exception as error:
        if not any(sign in str(error) for sign in SIGNS):
            raise
        raise PipelineError(GONE, ExitCode.DATA_LOSS) from error


@dataclass(frozen=True, slots=True)
class EventFiles:
    """Some files, as records; `damaged` are those that Spark would refuse, `long` those with too long a line."""

    spark: SparkSession
    paths: tuple[str, ...]
    skip_gone: bool = False
    damaged: frozenset[str] = frozenset()
    long: frozenset[str] = frozenset()

    @classmethod
    def of(cls, spark: SparkSession, paths: tuple[str, ...], *, skip_gone: bool = False) -> "EventFiles":
        """Return these files after a look for lines that are too long for Spark."""
        return cls(spark, paths, skip_gone, long=_found(spark, filter(_is_large, paths), _has_long_line))

    def records(self, late_before_us: int | None) -> DataFrame:
        """Read them; raises PipelineError for Parquet that holds no events."""
        tables = [path for path in self.paths if path.endswith(".parquet")]
        texts = [path for path in self.paths if not path.endswith(".parquet")]
        by_hand = self.damaged.union(self.long, filter(_is_unopenable, texts))
        texts = [path for path in texts if path not in by_hand]
        lines = [] if self.paths else [self.spark.createDataFrame([], LINES)]
        if texts:
            lines.append(_lines(self.spark, texts))
        if by_hand:
            lines.append(_spread(self.spark, sorted(by_hand)).mapInPandas(_salvaged, LINES))
        parts = [from_lines(each, late_before_us) for each in lines]
        if tables:
            parts.append(from_columns(_columns(self.spark, tables), late_before_us))
        return reduce(DataFrame.unionByName, parts)

    def after(self, error: Exception) -> "EventFiles":
        """Return the files to read after Spark failed to read these; raises the error if no file is at fault."""
        if not any(sign in str(error) for sign in SIGNS) or self.damaged:
            raise error
        there = self._there(error)
        damaged = _found(self.spark, filter(_is_compressed, there), _is_damaged)
        if not damaged and there == self.paths:
            raise error
        if damaged:
            _warn_of(sorted(damaged))
        return replace(self, paths=there, damaged=damaged, long=self.long.intersection(there))

    def _there(self, error: Exception) -> tuple[str, ...]:
        there = tuple(path for path in self.paths if _is_there(self.spark, path))
        gone = len(self.paths) - len(there)
        if gone and not self.skip_gone:
            raise PipelineError(GONE, ExitCode.DATA_LOSS) from error
        if gone:
            print(
                f"warning: {gone} of {len(self.paths)} event files were deleted before they were read", file=sys.stderr
            )
        return there


def _warn_of(damaged: Sequence[str]) -> None:
    names = ", ".join(_shown(path) for path in damaged[:MOST_NAMED])
    others = f" and {len(damaged) - MOST_NAMED} others" if len(damaged) > MOST_NAMED else ""
    print(
        f"warning: {names}{others}: damaged, or cut in the middle: what is lost has rows in `quarantine`, the rest of"
        " the file is taken",
        file=sys.stderr,
    )


def _require_there(spark: SparkSession, directory: str) -> None:
    if not _is_there(spark, directory):
        raise PipelineError(f"--source {directory}: found nothing there, expected a directory of event files")


def _is_there(spark: SparkSession, path: str) -> bool:
    file = _local(path)
    return exists(spark, path) if file is None else file.exists()


def _local(path: str) -> Path | None:
    """Return the path of a mounted file, None for one of another file system."""
    if "://" in path and not path.startswith("file:"):
        return None
    return Path(_shown(path))


def _is_compressed(path: str) -> bool:
    """Return whether a file is compressed by its name, which is what Spark goes by."""
    return path.endswith(".gz")


def _shown(path: str) -> str:
    return re.sub("^file:/+", "/", path)


def _is_unescapable(path: str) -> bool:
    """Return whether Spark cannot match a path: in a pattern, Hadoop takes what is before a colon for a scheme."""
    local = _local(path)
    return local is not None and ":" in str(local) and PATTERN_SIGNS.search(path) is not None


def _is_unopenable(path: str) -> bool:
    """Return whether Spark cannot open a file: in a name, Hadoop takes what is before a colon for a scheme."""
    local = _local(path)
    return local is not None and (":" in local.name or _is_unescapable(path))


def _is_large(path: str) -> bool:
    """Return whether a file could have too long a line; on a file system that is not mounted nobody looks."""
    local = _local(path)
    if local is None or path.endswith(".parquet"):
        return False
    try:
        return local.stat().st_size > (COMPRESSED_BYTES if _is_compressed(path) else MAX_LINE_BYTES)
    except OSError:
        # The file is gone: the task that reads it says so.
        return False


def _lines(spark: SparkSession, paths: Sequence[str]) -> DataFrame:
    lines = spark.read.option("lineSep", "\n").text([escaped(path) for path in paths])
    return lines.select("value", F.expr(SOURCE).alias("source"), F.lit(False).alias("damaged"))


def _columns(spark: SparkSession, paths: Sequence[str]) -> DataFrame:
    for path in filter(_is_unopenable, paths):
        raise PipelineError(f"{_shown(path)}: got a Parquet file with a colon in its path, expected none: rename it")
    exact = [escaped(path) for path in paths]
    schema = spark.read.parquet(*exact).schema
    _require_events(paths[0], schema)
    rows = spark.read.schema(event_schema()).parquet(*exact)
    return rows.select("*", F.expr(SOURCE).alias("source"))


def _require_events(path: str, schema: StructType) -> None:
    got = {field.name: field.dataType for field in schema}
    expected = {field.name: field.dataType for field in event_schema()}
    required = {field.name for field in FIELDS if not field.nullable}
    odd = sorted(name for name in expected if (got[name] != expected[name] if name in got else name in required))
    if odd:
        raise PipelineError(
            f"{_shown(path)}: expected the fields of events, these are missing or of another type: {odd}"
        )


def _found(spark: SparkSession, files: Iterable[str], holds: Callable[[str, bytes | None], bool]) -> frozenset[str]:
    """Return the files of which something holds, by a look at each in a task of its own."""

    def look(batches: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        for batch in batches:
            yield batch[["path"]][[holds(*file) for file in _files(batch)]]

    paths = list(files)
    found = _spread(spark, paths).mapInPandas(look, "path string").collect() if paths else []
    return frozenset(row.path for row in found)


def _spread(spark: SparkSession, paths: Sequence[str]) -> DataFrame:
    """Assign each file to a task: the path of a mounted one, of another the whole content as well."""
    mounted = [(path, None) for path in paths if _local(path) is not None]
    others = [escaped(path) for path in paths if _local(path) is None]
    files = spark.createDataFrame(mounted, "path string, content binary")
    if others:
        # Compressed, such a file has at most eventLogFileMaxMB, or a few more.
        content = spark.read.format("binaryFile").load(others)
        files = files.unionByName(content.select("path", "content"))
    return files.repartition(len(paths))


def _files(batch: pd.DataFrame) -> Iterator[tuple[str, bytes | None]]:
    return zip(batch["path"], batch["content"], strict=True)


def _opened(path: str, content: bytes | None) -> BinaryIO:
    return open(_shown(path), "rb") if content is None else BytesIO(content)


def _is_damaged(path: str, content: bytes | None) -> bool:
    with _opened(path, content) as file:
        return not is_whole(file)


def _has_long_line(path: str, content: bytes | None) -> bool:
    try:
        with _opened(path, content) as file:
            return has_long_line(file, compressed=_is_compressed(path))
    except FileNotFoundError:
        return False


def _salvaged(batches: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
    return (frame for batch in batches for file in _files(batch) for frame in _salvage(*file))


def _salvage(path: str, content: bytes | None) -> Iterator[pd.DataFrame]:
    with _opened(path, content) as file:
        rows: list[tuple[str, str, bool]] = []
        size = 0
        for line, damaged in lines_of(file, compressed=_is_compressed(path)):
            rows.append((line.decode(errors="replace"), _shown(path), damaged))
            size += len(line)
            if len(rows) >= LINES_A_BATCH or size >= BYTES_A_BATCH:
                yield pd.DataFrame(rows, columns=["value", "source", "damaged"])
                rows, size = [], 0
        yield pd.DataFrame(rows, columns=["value", "source", "damaged"])
