"""The part `ingest`: events of a real topic into tables, by the job and by a plain process.

It guards our own data source for topics, whose price is its speed (ADR 15).
Rule: the source that both engines are given is a file with the topic's name and where its cluster is; each run reads
the whole topic anew, and writes to a directory that is empty.
"""

import json
from pathlib import Path

from pipeline.sources.pulsar import PulsarSettings

__all__ = ["read_settings", "write_settings"]


def write_settings(settings: PulsarSettings, file: Path) -> None:
    """Write where the topic is, for engines to read."""
    told = {"service_url": settings.service_url, "topic": settings.topic, "admin_url": settings.admin_url}
    file.write_text(json.dumps(told))


def read_settings(file: Path) -> PulsarSettings:
    """Read where the topic is."""
    return PulsarSettings(**json.loads(file.read_text()))
