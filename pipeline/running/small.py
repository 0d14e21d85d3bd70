"""A small Spark, for little input: what it is told, and what little is.

To plan a query anew by what its first stages gave takes longer than to run it over little, and all is over before
HotSpot's second compiler would pay: without these a run over 10^5 events takes a third more of processor time. To
verify the classes of known jars takes a seventh of that of the start.
"""

import os
from collections.abc import Mapping
from dataclasses import replace
from itertools import accumulate, chain
from pathlib import Path
from typing import Final

from pipeline.core.options import CommonSettings
from pipeline.core.paths import mounted
from pipeline.core.tables.events import EVENTS

SMALL: Final[Mapping[str, str]] = {
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC"
    " -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
}
# What a Java virtual machine takes options from beside its command line.
OF_JAVA: Final = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS")
# About 200,000 events in compressed files.
LITTLE_BYTES: Final = 32 * 1024 * 1024


def for_little(common: CommonSettings, source: str | None) -> CommonSettings:
    """Return the settings with those of a small Spark where a run on this machine has little to read.

    `source` is a directory of event files; `--conf` goes before.
    """
    # spark-submit has started its Spark already. HotSpot does not start with two collectors.
    told = any("GC" in os.environ.get(name, "") for name in OF_JAVA)
    here = "PYSPARK_GATEWAY_PORT" not in os.environ and (common.master or "local").startswith("local")
    places = [mounted(place) for place in (f"{common.out}/{EVENTS.name}", source) if place is not None]
    if told or not here or not all(map(_is_little, places)):
        return common
    return replace(common, conf={**SMALL, **common.conf})


def _is_little(path: Path | None) -> bool:
    """Return whether the files below a directory are little together; what is not here may be much."""
    if path is None:
        return False
    try:
        sizes = map(_bytes_of, chain([path] if path.is_file() else [], path.rglob("*")))
        return all(size <= LITTLE_BYTES for size in accumulate(sizes))
    except OSError:
        # A proxy that writes there renames its files.
        return False


def _bytes_of(path: Path) -> int:
    if path.is_file():
        return path.stat().st_size
    # Spark goes into it, and `rglob` does not.
    return LITTLE_BYTES + 1 if path.is_symlink() else 0
