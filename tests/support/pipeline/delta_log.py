"""The log of a Delta table, read without Spark: a session for it would take longer than what it looks at."""

import json
from collections.abc import Iterable


def live_files(log: Iterable[str]) -> dict[str, dict[str, str]]:
    """Give the files that hold a table's rows, with the values of their partition, by the lines of its log in order.

    What a killed job has written, but not committed, is in no log.
    """
    files: dict[str, dict[str, str]] = {}
    for action in map(json.loads, log):
        if "add" in action:
            files[action["add"]["path"]] = action["add"]["partitionValues"]
        elif "remove" in action:
            files.pop(action["remove"]["path"], None)
    return files
