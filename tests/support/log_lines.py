"""A log in memory, and what it says."""

import io
import json
from typing import Any

from proxy.core.log import open_log


class LogLines:
    """The proxy's own log; `said` are its lines as an operator's collector reads them."""

    def __init__(self, level: str = "info") -> None:
        self._file = io.BytesIO()
        self.log = open_log(level, "json", self._file)

    @property
    def said(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self._file.getvalue().splitlines()]

    def of(self, event: str) -> list[dict[str, Any]]:
        return [line for line in self.said if line["event"] == event]
