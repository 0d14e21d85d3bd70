"""The summary at the top: what happened, who cost most, who waited, why, and what to set. Pure functions."""

import re
from collections.abc import Iterator
from typing import Final

from pipeline.report.advice import fleet_of, limits_of, load_of
from pipeline.report.clock import second
from pipeline.report.facts import Facts, Overview
from pipeline.report.parts import Part, Tiles, section
from pipeline.report.rankings import first, ranks, several, total
from pipeline.report.units import about, count, duration, limit, plural, share, shown, size, words_of

_AFTER_NUMBER: Final = re.compile(r"(?<=\d) ")
_VICTIMS: Final = ("memory_wait_seconds", "refused")
_MOST_VICTIMS: Final = 5
_LEAST_PART: Final = 0.01


@section("summary", "Summary")
def summary(facts: Facts) -> Iterator[Part]:
    """Yield key numbers, the most important facts in a few sentences, and who suffered most."""
    rankings = facts.found.rankings or ()
    yield _tiles(facts)
    if facts.period:
        yield (
            f"Of the events from {facts.period}. Costs are those of whole windows of `usage`, who was slowed is told by"
            " whole hours, and advice is of what the job whatif was given."
        )
    yield _happened(facts)
    if facts.found.storms:
        storm = max(facts.found.storms, key=lambda row: int(row["requests"]))
        yield (
            f"The largest storm began at {second(storm['begin_us'])}: {count(storm['requests'])} requests of"
            f" {plural(int(storm['clients']), 'connection')} within {duration(storm['arrival_seconds'] * 1e6)}, the"
            f" last of them served or refused after {duration(storm['served_seconds'] * 1e6)}."
        )
    for what, measure in (
        ("Who cost most (heap memory times how long it was held)", "heap_byte_seconds"),
        ("Who waited most, summed over requests", "memory_wait_seconds"),
        ("Who was refused most", "refused"),
    ):
        if found := first(rankings, measure):
            yield f"{what}: {found}."
    yield from _reasons(facts)
    yield _to_do(facts)
    for dimension in ("namespace", "principal"):
        if several(rankings, dimension) and any(total(rankings, measure) for measure in _VICTIMS):
            what = f"Who waited and who was refused most, by {words_of(dimension)}: how much, and which part of all"
            yield ranks(what, rankings, dimension, _VICTIMS, _MOST_VICTIMS)


def span(overview: Overview) -> str:
    """Write of which cluster, and from when to when."""
    begin, end = second(overview.begin_us), second(overview.end_us)
    of = f"Cluster {shown(overview.cluster)}, " if overview.cluster else ""
    return f"{of}{begin} to {end} UTC"


def _tiles(facts: Facts) -> Tiles:
    overview, recorded, row = facts.overview, facts.recorded, facts.advised.chosen
    tiles = {
        "requests": count(overview.requests),
        "not answered": share(overview.unanswered / max(overview.requests, 1)),
        "99 % of all requests waited for memory at most": about(recorded.p99_us),
        **{
            f"{kind} memory that lists held at most at one proxy": size(recorded.peaks.get(("lists", kind), 0)) + of
            for kind, of in (
                ("heap", _of(overview, overview.heap_limit)),
                ("direct", _of(overview, overview.direct_limit)),
            )
        },
        "heap and direct memory to set at each proxy": "no advice" if row is None else " and ".join(limits_of(row)),
    }
    # A number and its unit are one word.
    return Tiles({label: _AFTER_NUMBER.sub("\u00a0", value) for label, value in tiles.items()})


def _of(overview: Overview, most: int) -> str:
    return f" of {size(most)}" if most and not overview.limits_differ else ""


def _happened(facts: Facts) -> str:
    overview, p99_us = facts.overview, facts.recorded.p99_us
    waited = "" if p99_us is None else f"; 99 % of all waited at most {about(p99_us)} for memory"
    refused = f"{count(overview.unanswered)} ({share(overview.unanswered / max(overview.requests, 1))})"
    ended = f"{refused} were not answered" if overview.unanswered else "all were answered"
    return (
        f"What happened: {plural(overview.requests, 'request')} for topic lists of"
        f" {plural(overview.namespaces, 'namespace')} came to {plural(overview.proxies, 'proxy', 'proxies')};"
        f" {ended}{waited}."
    )


def _reasons(facts: Facts) -> Iterator[str]:
    overview, frame = facts.overview, facts.recorded.memory
    waited = {"heap": overview.heap_wait_us, "direct": overview.direct_wait_us}
    for kind, us in sorted(waited.items(), key=lambda one: -one[1]):
        part = us / max(1, sum(waited.values()))
        if part < _LEAST_PART:
            continue
        limited = frame[(frame["kind"] == kind) & (frame["limit_mib"] > 0)]
        most = ((limited["held_mib"] + limited["waiting_mib"]) / limited["limit_mib"]).max()
        yield (
            f"Why requests waited for memory: {share(part)} of that waiting was for {kind} memory."
            + (f" In use and waited for together came to {most:.1f} times its limit," if most >= 1 else "")
            + (f" mean of {duration(overview.clock.step_us)}." if most >= 1 else "")
        )


def _to_do(facts: Facts) -> str:
    row, overview = facts.advised.chosen, facts.overview
    if row is not None:
        heap, direct = limits_of(row)
        beyond = " extrapolated," if row["extrapolated"] else ""
        return (
            f"What to set,{beyond} for {load_of(row)}: {heap} of heap (now {limit(overview.heap_limit)}) and {direct}"
            f" of direct memory (now {limit(overview.direct_limit)}), {fleet_of(row)}. The lines of proxy.conf are"
            " under Advice."
        )
    if facts.advised.points:
        return "What to set: none of the limits that were tried holds the target; see Advice."
    return "What to set: no advice was given; see Advice for the reason."
