"""The pages about memory: each line of the budget is told, and the generated parts are where readers look for them."""

import re

import pytest

from proxy.app.memory.budget import LINES, worst_case_bytes
from proxy.config.config import Config
from scripts.generate_memory_docs import BEGIN, BLOCKS, files, formula
from scripts.generated import ROOT

MEMORY = (ROOT / "docs/memory.md").read_text(encoding="utf-8")
BY_OWNER = {line.owner: line for line in LINES}
BLOCKS_OF = {"memory": {"lines"}, "capacity": {"figures", "small", "pods", "storms", "levers", "sidecars"}}


def test_each_line_of_the_budget_is_explained_once_in_the_order_of_the_sum() -> None:
    items = MEMORY.partition("## Each line\n")[2].partition("\n\n**")[0]
    assert re.findall(r"(?m)^- \*\*([^*]*)\*\*:", items) == [line.owner for line in LINES]


def test_the_table_of_the_sum_has_each_line_and_ends_with_the_proxys_own_sum() -> None:
    table = MEMORY.partition(BEGIN.format("lines"))[2].partition("<!--")[0].strip().splitlines()[2:]
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in table]
    assert [row[0] for row in cells[:-1]] == [line.owner for line in LINES]
    expected = worst_case_bytes(Config.load(overrides={"brokerServiceURL": "pulsar://broker:6650"}))
    assert cells[-1][3] == f"**{expected / (1 << 20):,.1f}**"


@pytest.mark.parametrize("page", BLOCKS_OF)
def test_no_page_has_lost_a_generated_table(page: str) -> None:
    text = (ROOT / f"docs/{page}.md").read_text(encoding="utf-8")
    assert {name for name in BLOCKS if BEGIN.format(name) in text} == BLOCKS_OF[page]


def test_a_page_that_was_changed_by_hand_is_written_anew() -> None:
    for page, text in files().items():
        assert text == page.read_text(encoding="utf-8"), page.name


@pytest.mark.parametrize(
    ("owner", "expected"),
    [
        ("process at rest", "64 MiB"),
        ("decoded topic lists", "`maxTopicListInFlightHeapMemSizeMB`"),
        (
            "kernel send buffers",
            "2 x `maxConcurrentInboundConnections` x `clientSocketSendBufferBytes` unless `clientSocketSendMemoryMB`; "
            "32 KiB x `maxConcurrentInboundConnections` with `clientSocketSendMemoryMB`",
        ),
        ("books of writers", "1.5 KiB x `maxConcurrentInboundConnections`"),
        ("keys that owe", "102 MiB unless `topicListFairness=fifo`"),
        ("askers of the admin API", "10 MiB unless `controlSocketPath=none`; 10 MiB with `adminApiAddress`"),
    ],
)
def test_a_formula_reads_as_the_proxy_computes_it(owner: str, expected: str) -> None:
    assert formula(BY_OWNER[owner]) == expected
