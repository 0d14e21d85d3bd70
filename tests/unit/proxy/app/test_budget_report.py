"""What the log of `serve` says of the memory budget: the same keys as `check-config`."""

from collections.abc import Callable
from typing import Any

import pytest

from proxy.app.memory.budget import worst_case
from proxy.app.memory.budget_report import BudgetReport, count_budget, log_budget, log_two_budgets
from proxy.app.metrics.counters import MemoryBudget
from proxy.core.log import Logger
from tests.support.configured import configured
from tests.support.log_lines import LogLines

MIB = 1024 * 1024
REPORT = "proxy.app.memory.budget_report"
CONFIG = configured()


@pytest.fixture
def has(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Give a function that sets the memory of machine and container, in MiB."""

    def set_memory(machine: int, container: int | None = None) -> None:
        monkeypatch.setattr(f"{REPORT}.machine_memory_bytes", lambda _: machine * MIB)
        monkeypatch.setattr(f"{REPORT}.container_limit_bytes", lambda _: None if container is None else container * MIB)

    return set_memory


def line_of(log_it: Callable[[MemoryBudget, Logger], None]) -> dict[str, Any]:
    """Return the only line that is logged about the budget of all defaults."""
    budget, lines = MemoryBudget(), LogLines()
    count_budget(budget, CONFIG, exports=False)
    log_it(budget, lines.log)
    (said,) = lines.said
    return said


@pytest.mark.parametrize(("machine", "container"), [(2_885, None), (16_000, 512)])
def test_a_budget_that_does_not_fit_names_the_keys_that_check_config_names(
    has: Callable[..., None], machine: int, container: int | None
) -> None:
    has(machine, container)
    said = line_of(log_budget)
    # docs/operations.md looks for these lines with grep.
    assert said["event"].startswith("memory budget")
    assert said["level"] == "warning"
    checked = BudgetReport.of(tuple(worst_case(CONFIG))).excess()
    assert checked is not None
    assert f"lower {', '.join(said['keys'])} " in checked
    assert {"maxConcurrentLookupRequests", "relaySocketMemoryMB", "brokerConnectionsTotal"} <= {*said["keys"]}


def test_a_budget_that_fits_names_no_keys(has: Callable[..., None]) -> None:
    has(16_000)
    said = line_of(log_budget)
    assert (said["level"], said["event"], "keys" in said) == ("info", "memory budget", False)


def test_two_budgets_that_do_not_fit_together_name_the_keys_too(has: Callable[..., None]) -> None:
    has(5_000)
    alone = line_of(lambda budget, log: log_two_budgets(budget, log, 100 * MIB, 4711))
    assert (alone["level"], alone["pid"], "keys" in alone) == ("info", 4711, False)
    both = line_of(lambda budget, log: log_two_budgets(budget, log, budget.total_bytes, 4711))
    assert both["level"] == "warning"
    assert both["budget_bytes"] > both["machine_bytes"] == 5_000 * MIB
    assert "maxConcurrentLookupRequests" in both["keys"]
