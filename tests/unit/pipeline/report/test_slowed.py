"""The section about overload: who was slowed, when and why, and that nobody was."""

from dataclasses import replace

from pipeline.report.facts import Facts
from pipeline.report.parts import Section, Sheet
from pipeline.report.slowed import slowed
from tests.support.pipeline.report_frames import connections, facts, topic


def section(rows: list[dict[str, object]]) -> Section:
    given: Facts = facts()
    return slowed(replace(given, found=replace(given.found, slowed=rows)))


def sentences(found: Section) -> list[str]:
    return [part for part in found.parts if isinstance(part, str)]


def test_the_page_says_which_topic_was_slowed_how_long_how_much_and_why() -> None:
    found = slowed(facts())
    (table,) = [part for part in found.parts if isinstance(part, Sheet)]
    (row,) = table.rows
    assert row[1:] == (
        "was", "90 s", "2026-01-01 00:00 to 2026-01-01 01:00", "its backlog, memory of the proxy", "83 %",
        "4 MiB, 4,000", "1 MiB, 1,000", "25 %",
    )  # fmt: skip
    assert any("for 90 s, to 25 % of its natural rate in the mean" in text for text in sentences(found))


def test_the_page_says_for_how_long_connections_were_not_read_and_what_was_only_observed() -> None:
    would = (
        "Connections would have been paused, 2026-01-01 00:00 to 2026-01-01 01:00: up to 40 at a time at one proxy, for"
    )
    assert any(text.startswith(would) for text in sentences(slowed(facts())))
    observed = sentences(section([topic() | {"observed": True}]))
    assert any(text.startswith("Longest would have been slowed persistent://") for text in observed)
    only = sentences(section([connections()]))
    assert only[0].startswith("Nobody was slowed in fact")
    assert "Nobody was slowed in fact" not in " ".join(sentences(section([topic(), connections()])))


def test_nobody_was_slowed_is_said() -> None:
    assert sentences(section([])) == [
        "Nobody was slowed: no event says that overload control paused a connection or limited a topic."
    ]
