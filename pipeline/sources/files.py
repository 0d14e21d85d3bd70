"""Event files of the proxy, `*.jsonl.gz` and `*.jsonl`, as a stream of their lines.

Rule: hidden files are not finished and are skipped. Of a damaged file on a disk Spark reads what is before the damage;
what is left of a line there is no event. `pulsar-proxy recover-events` copies the rest into another file. On an object
store a file that cannot be read whole ends the stream.
"""

from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pipeline.core.errors import PipelineError
from pipeline.core.paths import escaped, mounted
from pipeline.store.tables import exists

# Files that are older than the newest by more than this would be passed by; no file is.
NEVER: Final = "36500d"
# Spark gives the path as a URI. In a query a plus sign means a space, in a path it is itself.
SOURCE: Final = "regexp_replace(url_decode(replace(_metadata.file_path, '+', '%2B')), '^file:/+', '/')"


def lines(spark: SparkSession, directory: str, max_files: int) -> DataFrame:
    """Return a stream of the lines of event files, as they come; raises PipelineError.

    Columns: value, and source, the file. At most `max_files` make a batch.
    """
    if not exists(spark, directory):
        raise PipelineError(f"--source {directory}: found nothing there, expected a directory of event files")
    reader = spark.readStream.format("text").options(
        lineSep="\n",
        recursiveFileLookup="true",
        pathGlobFilter="*.{jsonl,jsonl.gz}",
        maxFilesPerTrigger=max_files,
        maxFileAge=NEVER,
        # Spark takes a connection that broke for damage, and would pass by the rest of a sound file.
        ignoreCorruptFiles=str(mounted(directory) is not None).lower(),
    )
    return reader.load(escaped(directory)).select("value", F.expr(SOURCE).alias("source"))
