"""Read the decisions of overload control from the event log of a proxy that has ended."""

import gzip
import json
from pathlib import Path
from typing import Any


def decisions(directory: Path, by: str) -> list[dict[str, Any]]:
    """Return the events of one throttle, in their order."""
    found = []
    for path in directory.iterdir():
        text = gzip.decompress(path.read_bytes()).decode() if path.suffix == ".gz" else path.read_text()
        found += [json.loads(line) for line in text.splitlines()]
    return sorted((event for event in found if event.get("throttle_by") == by), key=lambda event: int(event["seq"]))
