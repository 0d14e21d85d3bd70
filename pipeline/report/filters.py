"""The filters of the page: what its two selects offer, and what its script draws for each choice. No pyspark here."""

import pandas as pd

from pipeline.report.facts import ALL, Facts
from pipeline.report.parts import Filters
from pipeline.report.units import distinct, duration, shown, words_of

__all__ = ["filters"]

Series = tuple[list[int], list[float]]


def filters(facts: Facts) -> Filters | None:
    """Give the filters of a page; none where there is nothing to choose."""
    choices = facts.choices
    if choices is None or not len(choices.cells):
        return None
    clock = choices.clock
    data = {
        "begin_ms": clock.origin_us // 1000,
        "step_ms": clock.step_us / 1000,
        "bins": clock.bins,
        "interval": duration(clock.step_us),
        "cells": _by_choice(choices.cells),
    }
    offered = [
        _offered(choices.cells[column], names, f"all other {column}s" if column != "proxy" else "all other proxies")
        for column, names in (("namespace", choices.namespaces), ("proxy", choices.proxies))
    ]
    return Filters(offered[0], offered[1], data)


def _offered(ranks: "pd.Series[int]", names: tuple[str, ...], others: str) -> tuple[tuple[int, str], ...]:
    known = set(ranks.unique()) - {ALL}
    labels = [*distinct(map(shown, names)), others]
    return tuple((place, label) for place, label in enumerate(labels) if place in known)


def _by_choice(cells: pd.DataFrame) -> dict[str, dict[str, dict[str, Series]]]:
    found: dict[str, dict[str, dict[str, Series]]] = {}
    for key, rows in cells.groupby(["namespace", "proxy", "chart", "series"], sort=True):
        namespace, proxy, chart, series = map(str, key)
        word = words_of(series) if chart == "endings" else series
        # Four digits are more than a picture shows.
        values = [float(f"{value:.4g}") for value in rows["value"]]
        found.setdefault(f"{namespace} {proxy}", {}).setdefault(chart, {})[word] = (rows["bin"].tolist(), values)
    return found
