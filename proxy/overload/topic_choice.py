"""The topics that the adaptive throttle may slow: patterns of names, opted in and opted out. No I/O, no clock."""

import re
from typing import Final

from proxy.overload.samples import OTHER_TOPICS

_PARTITION: Final = re.compile(r"-partition-[0-9]{1,9}\Z")
_NOTHING: Final = re.compile(r"(?!)")


def base_name(topic: str) -> str:
    """Return the name that operators know: without the suffix of a partition."""
    return _PARTITION.sub("", topic)


class TopicChoice:
    """The topics that a pattern matches, and none behind a `!`; `*` stands for any text.

    Topics without a name of their own are chosen only if every topic is.
    """

    __slots__ = ("_chosen", "_others", "_patterns", "_spared")

    def __init__(self, patterns: tuple[str, ...]) -> None:
        self._patterns = patterns
        chosen = tuple(pattern for pattern in patterns if not pattern.startswith("!"))
        spared = tuple(pattern[1:] for pattern in patterns if pattern.startswith("!"))
        self._others = "*" in chosen and not spared
        self._chosen = None if "*" in chosen else _one_of(chosen) or _NOTHING
        self._spared = _one_of(spared)

    # Settings are compared: a reload changes only what differs.
    def __eq__(self, other: object) -> bool:
        return isinstance(other, TopicChoice) and self._patterns == other._patterns

    def __hash__(self) -> int:
        return hash(self._patterns)

    def __contains__(self, topic: str) -> bool:
        if topic in ("", OTHER_TOPICS):
            return self._others
        name = base_name(topic)
        if self._spared is not None and self._spared.match(name):
            return False
        return self._chosen is None or self._chosen.match(name) is not None


def _one_of(patterns: tuple[str, ...]) -> re.Pattern[str] | None:
    """Return an expression for any of the patterns; only `*` means anything but itself."""
    if not patterns:
        return None
    return re.compile("(?s:" + "|".join(f"(?:{_as_regex(pattern)})" for pattern in patterns) + r")\Z")


def _as_regex(pattern: str) -> str:
    """Return an expression that looks at each letter of a name a few times only, whatever clients call their topics.

    The first place of a text between two stars is as good as any later one, so that it is never looked for again.
    """
    first, *others = (re.escape(part) for part in pattern.split("*"))
    if not others:
        return first
    return first + "".join(f"(?>.*?{part})" for part in others[:-1] if part) + ".*" + others[-1]
