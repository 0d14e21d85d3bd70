"""The command `pulsar-proxy check-config`: every fault of a configuration, its memory budget, and with `--connect` the
way to the brokers.

Rule: without `--connect` no port is opened and nobody is asked. Exit code 2: the configuration is wrong; 1: it is
right, but a broker cannot be used. Files are looked at also if the configuration cannot be loaded, so that all faults
are told at once.
"""

import argparse
import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from proxy.app.memory.budget import worst_case
from proxy.app.memory.budget_report import BudgetReport
from proxy.app.metrics.otel_settings import otel_settings
from proxy.app.secret_modes import open_secrets
from proxy.app.start_checks import StartFault, start_faults
from proxy.cli.installation import shared_names
from proxy.config.config import Config, ConfigError, ConfigProblem, ConfigWarning
from proxy.config.credential_targets import explained
from proxy.net.tls.files import check

if TYPE_CHECKING:
    from proxy.cli.connect_check import Tried

FAILED: Final = 1
BAD_CONFIG: Final = 2


@dataclass(slots=True)
class Findings:
    """The findings of a check, in the order in which they are shown."""

    faults: list[object] = field(default_factory=list)
    warnings: list[object] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    budget: BudgetReport | None = None
    tried: "list[Tried]" = field(default_factory=list)

    @property
    def code(self) -> int:
        """The exit code."""
        if self.faults:
            return BAD_CONFIG
        return FAILED if any(each.failed for each in self.tried) else 0

    def document(self) -> Mapping[str, object]:
        """Return the findings for JSON."""
        return {
            "valid": not self.faults,
            "errors": [_fields(fault) for fault in self.faults],
            "warnings": [_fields(warning) for warning in self.warnings],
            "notes": self.notes,
            "budget": None if self.budget is None else self.budget.document(),
            "connect": [each.document() for each in self.tried],
        }


def run_check(config: Config, options: argparse.Namespace) -> int:
    """Check a configuration that could be loaded, print the findings, and return the exit code."""
    found = _findings(config, strict=options.strict)
    if not found.faults and options.connect:
        from proxy.cli.connect_check import try_brokers

        found.tried = try_brokers(config)
    return show(found, as_json=options.json)


def refused(error: ConfigError, rest: Config, options: argparse.Namespace) -> int:
    """Print the faults of a configuration that could not be loaded, and return the exit code.

    `rest` has the default for each key that was refused: such a key is not told again.
    """
    told = {problem.key for problem in error.problems}
    faults, _ = _file_faults(rest)
    more = [fault for fault in faults if fault.key not in told]
    found = Findings([*error.problems, *more], [*error.warnings])
    if options.strict:
        _be_strict(found)
    return show(found, as_json=options.json)


def show(found: Findings, *, as_json: bool) -> int:
    """Print the findings, and return the exit code."""
    if as_json:
        print(json.dumps(found.document()))
        return found.code
    for warning in found.warnings:
        print(f"warning: {warning}", file=sys.stderr)
    for fault in found.faults:
        print(f"error: {fault}", file=sys.stderr)
    if found.faults:
        return found.code
    for line in (*found.notes, *(() if found.budget is None else found.budget.lines())):
        print(line)
    for each in found.tried:
        print(f"error: {each}" if each.failed else each, file=sys.stderr if each.failed else sys.stdout)
    print("configuration is valid" if not found.code else "configuration is valid, but a broker cannot be used")
    return found.code


def _findings(config: Config, *, strict: bool) -> Findings:
    faults, expired = _file_faults(config)
    # These variables count only if `serve` has the same environment.
    exporting, notes = otel_settings(os.environ)
    odd = [f"environment: {note}" for note in notes]
    found = Findings([*faults], [*config.warnings, *open_secrets(config), *expired, *odd, *shared_names()])
    if strict:
        _be_strict(found)
    found.notes = list(explained(config))
    found.budget = BudgetReport.of(tuple(worst_case(config, exports=exporting is not None)))
    if (excess := found.budget.excess()) is not None:
        found.warnings.append(excess)
    return found


def _file_faults(config: Config) -> tuple[list[ConfigProblem | StartFault], list[str]]:
    """Return the faults of certificates and of all that the start needs, and the certificates that have expired."""
    faults: list[ConfigProblem | StartFault] = [*start_faults(config)]
    try:
        return faults, check(config)
    except ConfigError as error:
        return [*error.problems, *faults], []


def _be_strict(found: Findings) -> None:
    """Make faults of the warnings about keys that no proxy knows."""
    unknown = [each for each in found.warnings if isinstance(each, ConfigWarning) and each.unknown]
    found.faults += unknown
    found.warnings = [each for each in found.warnings if each not in unknown]


def _fields(finding: object) -> Mapping[str, object]:
    match finding:
        case ConfigProblem(file, line, key, got, expected):
            return {"text": str(finding), "file": file, "line": line, "key": key, "got": got, "expected": expected}
        case ConfigWarning(file, line, key):
            return {"text": str(finding), "file": file, "line": line, "key": key}
        case StartFault(place, key):
            return {"text": str(finding), "file": place, "line": None, "key": key}
    return {"text": str(finding)}
