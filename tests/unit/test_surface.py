"""The snapshot of what a release must not change: placeholders, shapes, the differ, and what is read from source."""

import argparse
import ast

import pytest

from scripts.surface.commands import faults_of
from scripts.surface.parser_dump import described
from scripts.surface.running import families
from scripts.surface.text import differences, merged, plain, plain_values, shape, without, written
from scripts.surface.tree import events_of, queries


def test_ports_of_this_machine_have_a_placeholder_and_others_stay() -> None:
    assert plain("heap on 127.0.0.1:43127, localhost:80, broker:6650") == (
        "heap on 127.0.0.1:PORT, localhost:PORT, broker:6650"
    )


def test_places_have_placeholders_in_keys_and_values() -> None:
    document = {"/tmp/a/key": ["/tmp/a/cert.pem", 7, None], "port": "127.0.0.1:9"}
    assert plain_values(document, {"/tmp/a": "HOME"}) == {
        "HOME/key": ["HOME/cert.pem", 7, None],
        "port": "127.0.0.1:PORT",
    }


def test_shape_keeps_types_and_fixed_words_only() -> None:
    assert shape({"age": 1.5, "id": 7, "name": "x", "mode": "relay", "ready": True, "next": None}) == {
        "age": "number", "id": "number", "name": "str", "mode": "str relay", "ready": "bool", "next": "null",
    }  # fmt: skip


def test_shape_of_a_list_has_every_key_and_every_type_of_its_rows() -> None:
    rows = [{"broker": None, "mode": "lookup"}, {"broker": "b", "mode": "relay", "rate": 1}]
    expected = [{"broker": "null | str", "mode": "str lookup | str relay", "rate": "number"}]
    assert shape(rows) == expected
    assert shape(rows[::-1]) == expected


def test_an_empty_list_does_not_hide_the_rows_of_another() -> None:
    assert merged([[], ["str"]]) == merged([["str"], []]) == ["str"]


@pytest.mark.parametrize(
    ("before", "now"),
    [({"a": 1}, {"b": 1}), ({"a": "number"}, {"a": "str"}), ({"a": {"x"}}, {"a": set()})],
    ids=["renamed", "other type", "gone"],
)
def test_every_difference_is_a_line_that_went_or_came(before: object, now: object) -> None:
    found = differences("metrics", written(before), written(now))
    assert found.startswith("--- metrics before\n+++ metrics now\n")
    assert differences("metrics", written(before), written(before)) == ""


def test_text_of_a_theme_does_not_depend_on_the_order_of_keys_and_sets() -> None:
    assert written({"b": {"y", "x"}, "a": 1}) == written({"a": 1, "b": {"x", "y"}})


def test_human_text_is_left_out_at_any_depth() -> None:
    assert without({"a": [{"description": "x", "type": "y"}]}, frozenset({"description"})) == {"a": [{"type": "y"}]}


def test_events_of_loggers_are_found_under_every_name() -> None:
    source = """
EVENT: Final = "by a constant"
def f(self):
    self._log.info("at once", detail="no event")
    log.warning("up" if up else "down")
    event, change = "of a pair", "no event either"
    log.error(event, change=change)
    write = log.debug if routine else log.info
    write(EVENT)
    log.error(ELSEWHERE)
    log.warning(str(error))
    commands.error(request_id, "no event")
"""
    constants = {"ELSEWHERE": {"of another module"}, "request_id": {"no event"}}
    assert events_of(ast.parse(source), constants) == {
        "at once", "up", "down", "of a pair", "by a constant", "of another module",
    }  # fmt: skip


def test_faults_name_keys_by_their_line_or_by_their_name() -> None:
    said = (
        "warning: /a/1.conf:2: second: unknown key, ignored\n"
        "error: /a/1.conf:1: first: got 'x', expected a number\n"
        "error: /a/1.conf: third: got nothing\n"
        "error: no key at all\n"
    )
    assert faults_of(said, ["first", "second"]) == {"error": ["first", "third"], "warning": ["second"]}


def test_scrape_gives_types_and_labels_without_values_or_help() -> None:
    text = '# HELP a_total Text.\n# TYPE a_total counter\na_total{cause="idle",version="1.2"} 3.0\nb 1\n'
    assert families(text) == {
        "types": {"a_total": "counter"},
        "samples": {"a_total": {"cause=idle, version=*"}, "b": {""}},
    }


def test_queries_of_a_dashboard_come_without_its_texts() -> None:
    panel = {"title": "text", "targets": [{"expr": "up", "legendFormat": "{{pod}}"}], "query": {"query": "x"}}
    assert list(queries(panel)) == ["expr: up", "legendFormat: {{pod}}", "query: x"]


def test_parser_is_described_without_help_texts() -> None:
    parser = argparse.ArgumentParser(add_help=False)
    group = parser.add_mutually_exclusive_group()
    group.add_argument("--size", default=3, metavar="N", help="text")
    group.add_argument("--kind", choices=("a", "b"))
    found = described(parser)
    assert found["options"]["--size"] == {
        "kind": "StoreAction", "metavar": "N", "nargs": None, "choices": None, "default": "3", "required": False,
    }  # fmt: skip
    assert found["options"]["--kind"]["choices"] == ["a", "b"]
    assert found["exclusive"] == [["--size", "--kind"]]
    assert "text" not in str(found)
