"""The result of a reload, for the admin API and the log."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Final

from proxy.config.sources import ConfigProblem

# Most changes, faults and warnings in a report, each; the log has all of them.
MOST_LINES: Final = 500


@dataclass(frozen=True, slots=True)
class KeyChange:
    """A changed key with its old and new value, printable and with secrets masked."""

    key: str
    old: str
    new: str


@dataclass(frozen=True, slots=True)
class ReloadReport:
    """The result: `applied`, `refused` (with `reason` and configuration `faults`) or `ignored` while stopping."""

    result: str
    changed: tuple[KeyChange, ...] = ()
    needs_restart: tuple[KeyChange, ...] = ()
    faults: tuple[ConfigProblem, ...] = ()
    warnings: tuple[str, ...] = ()
    reason: str = ""

    def document(self) -> Mapping[str, object]:
        """Return the report as JSON values, at most `MOST_LINES` of each list."""
        return {
            "result": self.result,
            "changed": [asdict(change) for change in self.changed[:MOST_LINES]],
            "needs_restart": [asdict(change) for change in self.needs_restart[:MOST_LINES]],
            "faults": [asdict(fault) for fault in self.faults[:MOST_LINES]],
            "warnings": list(self.warnings[:MOST_LINES]),
            "reason": self.reason,
        }
