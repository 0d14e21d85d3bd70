"""Own how a difference from the Java proxy is listed, and how what was found is held against the list."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Final

from tests.transcripts.compare import Found

# Stands for any text in a rule.
ANYTHING: Final = "…"
# Stands for the last word of the script's name.
LAST_WORD: Final = "<last word>"


@dataclass(frozen=True, slots=True)
class Rule:
    """Places where ours is otherwise: how many, in which scripts, where there, what either says (None: nothing)."""

    times: int
    scripts: str
    where: str
    java: str | None
    ours: str | None


@dataclass(frozen=True, slots=True)
class Reason:
    """Why ours is wanted, for all the places that its rules list."""

    title: str
    why: str
    rules: tuple[Rule, ...]


def matches(rule: Rule, script: str, found: Found) -> bool:
    """Tell whether the rule lists this place of this script."""
    word = script.rpartition(" ")[2]
    return (
        _fits(rule.scripts, script, word)
        and _fits(rule.where, found.where, word)
        and _fits(rule.java, found.java, word)
        and _fits(rule.ours, found.ours, word)
    )


def _fits(pattern: str | None, text: str | None, word: str) -> bool:
    if pattern is None or text is None:
        return pattern is text
    return _compiled(pattern.replace(LAST_WORD, word)).fullmatch(text) is not None


@cache
def _compiled(pattern: str) -> "re.Pattern[str]":
    return re.compile(".*".join(map(re.escape, pattern.split(ANYTHING))), re.DOTALL)


def judge(found: Mapping[str, Iterable[Found]], reasons: Iterable[Reason]) -> list[str]:
    """Say what is not listed, what is listed twice, and which rules list more or fewer places than there are."""
    rules = [rule for reason in reasons for rule in reason.rules]
    counts = dict.fromkeys(rules, 0)
    problems = [] if len(counts) == len(rules) else ["two rules are equal"]
    for script, places in found.items():
        for place in places:
            listing = [rule for rule in rules if matches(rule, script, place)]
            for rule in listing:
                counts[rule] += 1
            if len(listing) != 1:
                problems.append(f"{script!r}: {place} is listed {len(listing)} times, expected once: {listing}")
    problems += [
        f"{rule} lists {rule.times} places, found {count}" for rule, count in counts.items() if count != rule.times
    ]
    return problems
