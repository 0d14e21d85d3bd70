"""What became of a reload, for whoever asked for it."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Final

from proxy.config.sources import ConfigProblem

# So many changes, faults and warnings are reported each; the log has all of them.
MOST_LINES: Final = 500


@dataclass(frozen=True, slots=True)
class KeyChange:
    """One key, and its values for human eyes."""

    key: str
    old: str
    new: str


@dataclass(frozen=True, slots=True)
class ReloadReport:
    """The result: `applied`, `refused` (with `reason`, and `faults` if the configuration has any) or `ignored`."""

    result: str
    changed: tuple[KeyChange, ...] = ()
    needs_restart: tuple[KeyChange, ...] = ()
    faults: tuple[ConfigProblem, ...] = ()
    warnings: tuple[str, ...] = ()
    reason: str = ""

    def document(self) -> Mapping[str, object]:
        """Give it as a tree for JSON."""
        return {
            "result": self.result,
            "changed": [asdict(change) for change in self.changed[:MOST_LINES]],
            "needs_restart": [asdict(change) for change in self.needs_restart[:MOST_LINES]],
            "faults": [asdict(fault) for fault in self.faults[:MOST_LINES]],
            "warnings": list(self.warnings[:MOST_LINES]),
            "reason": self.reason,
        }
