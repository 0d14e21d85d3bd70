"""Small files on the file systems that Spark has: `s3a`, `gs`, `abfss`, `hdfs`, with whatever `--conf` says of them.

Rule: that a file is made only where none is, the store itself sees to, never a look before. S3 must be asked for it:
with a store that has no conditional writes the job ends, with the reason, instead of losing what another writes.
"""

import time
from typing import Any, Final

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from pipeline.core.errors import ExitCode, PipelineError
from pipeline.core.paths import escaped

IF_ABSENT: Final = "fs.option.create.conditional.overwrite"
GONE: Final = "java.io.FileNotFoundException"
# S3's answer to two writers at the same moment, instead of who was first.
CONFLICT: Final = "Status Code: 409"
HIDDEN: Final = "._"


def exists(spark: SparkSession, path: str) -> bool:
    """Return whether a file is there."""
    where, files = _open(spark, path)
    return bool(files.exists(where))


def size(spark: SparkSession, path: str) -> int:
    """Return the bytes of all files below a directory."""
    where, files = _open(spark, path)
    return int(files.getContentSummary(where).getLength())


def data_files(spark: SparkSession, path: str) -> list[str]:
    """List the files below a directory that readers look at, relative to it; without it there are none."""
    where, files = _open(spark, path)
    if not files.exists(where):
        return []
    begin = len(str(files.makeQualified(where).toUri().getPath())) + 1
    found, below = files.listFiles(where, True), []
    while found.hasNext():
        below.append(str(found.next().getPath().toUri().getPath())[begin:])
    return sorted(each for each in below if not any(part[0] in HIDDEN for part in each.split("/")))


def holders(spark: SparkSession, path: str, name: str) -> list[str]:
    """List the directories right below one that have something of that name."""
    where, files = _open(spark, f"{escaped(path)}/*/{name}")
    return sorted(str(found.getPath().getParent().getName()) for found in files.globStatus(where) or ())


def make(spark: SparkSession, path: str) -> None:
    """Create a directory and its parents, unless it is there."""
    where, files = _open(spark, path)
    files.mkdirs(where)


def remove(spark: SparkSession, path: str) -> None:
    """Delete a file or a directory, if it is there."""
    where, files = _open(spark, path)
    files.delete(where, True)


def remove_older(spark: SparkSession, path: str, seconds: float) -> None:
    """Delete what is in a directory and was changed longer ago."""
    where, files = _open(spark, path)
    if not files.exists(where):
        return
    for each in files.listStatus(where):
        if each.getModificationTime() < (time.time() - seconds) * 1000:
            files.delete(each.getPath(), True)


def rename(spark: SparkSession, path: str, to: str) -> None:
    """Rename a file or a directory; raises PipelineError if it did not get the name `to`."""
    where, files = _open(spark, path)
    target, _ = _open(spark, to)
    files.mkdirs(target.getParent())
    if not files.rename(where, target):
        raise PipelineError(f"{path}: got no other name, expected {to}", ExitCode.FAILED)


class HadoopFiles:
    """The files of one directory; see `pipeline.store.lease.Files`."""

    def __init__(self, spark: SparkSession, directory: str) -> None:
        self._jvm: Any = spark._jvm
        self._directory = directory
        self._where, self._files = _open(spark, directory)

    def names(self) -> list[str]:
        try:
            return sorted(str(each.getPath().getName()) for each in self._files.listStatus(self._where))
        except Py4JJavaError as error:
            if _is(error, GONE):
                return []
            raise

    def read(self, name: str) -> str | None:
        try:
            stream = self._files.open(self._path(name))
            try:
                return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
            finally:
                stream.close()
        except Py4JJavaError as error:
            if _is(error, GONE):
                return None
            raise

    def create(self, name: str, text: str) -> bool:
        """Make a file and say so, unless it is there; raises PipelineError where the store cannot tell."""
        builder = self._files.createFile(self._path(name)).overwrite(False).recursive()
        if self._files.getScheme() == "s3a":
            if not self._files.hasPathCapability(self._where, IF_ABSENT):
                raise PipelineError(
                    f"{self._directory}: the store makes no file only where none is, expected conditional writes"
                    " (fs.s3a.create.conditional.enabled): without them two writers at a time lose rows",
                    ExitCode.FAILED,
                )
            builder = builder.must(IF_ABSENT, "true")
        try:
            _write(builder.build(), text)
        except Py4JJavaError as error:
            # The answer may have been lost, or another may have been first: the file itself tells.
            found = self.read(name)
            if found is None and CONFLICT not in str(error):
                raise
            return found == text
        return True

    def replace(self, name: str, text: str) -> None:
        _write(self._files.create(self._path(name), True), text)

    def delete(self, name: str) -> None:
        self._files.delete(self._path(name), False)

    def _path(self, name: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(self._where, name)


def _open(spark: SparkSession, path: str) -> tuple[Any, Any]:
    jvm: Any = spark._jvm
    session: Any = spark._jsparkSession
    where = jvm.org.apache.hadoop.fs.Path(path)
    return where, where.getFileSystem(session.sessionState().newHadoopConf())


def _write(stream: Any, text: str) -> None:
    try:
        stream.write(bytearray(text.encode()))
    finally:
        stream.close()


def _is(error: Py4JJavaError, name: str) -> bool:
    return str(error.java_exception.getClass().getName()) == name
