"""Parser for the properties syntax of proxy.conf: text in, entries with line numbers out.

Rule: the syntax is that of `java.util.Properties` (continuation lines, `=`, `:` or blank as separator, escapes, Latin-1
bytes), so that both proxies can use the same file. A bad escape is reported with its line, and parsing continues: an
operator wants all faults at once. This module knows no key and no default.
"""

import re
from dataclasses import dataclass

_LINE_END = re.compile(r"\r\n|\r|\n")
_LEADING_BLANKS = " \t\f"
_SEPARATOR = re.compile(r"(?<!\\)(?:\\\\)*([ \t\f]*[=:]|[ \t\f])[ \t\f]*")
_ODD_BACKSLASHES = re.compile(r"(?<!\\)(?:\\\\)*\\\Z")
_ESCAPE = re.compile(r"\\(u[0-9A-Fa-f]{4}|.)", re.DOTALL)
_SURROGATE_PAIR = re.compile(r"[\uD800-\uDBFF][\uDC00-\uDFFF]")
_NAMED_ESCAPES = {"t": "\t", "n": "\n", "f": "\f", "r": "\r"}


@dataclass(frozen=True, slots=True)
class ConfEntry:
    """An entry `key=value` and its first line (1-based)."""

    key: str
    value: str
    line: int


@dataclass(frozen=True, slots=True)
class ConfSyntaxFault:
    """A line that Java would refuse to load, and the text at fault."""

    line: int
    got: str
    expected: str


@dataclass(frozen=True, slots=True)
class ConfFile:
    """All entries in file order, repeated keys included, and all faults."""

    entries: tuple[ConfEntry, ...]
    faults: tuple[ConfSyntaxFault, ...]


def parse_conf(data: bytes) -> ConfFile:
    """Parse a properties file; faults are returned, not raised."""
    entries: list[ConfEntry] = []
    faults: list[ConfSyntaxFault] = []
    for number, text in _logical_lines(data.decode("latin-1")):
        key, value = _split(text)
        try:
            entries.append(ConfEntry(unescape(key), unescape(value), number))
        except ValueError as error:
            faults.append(ConfSyntaxFault(number, str(error), "\\u and four hexadecimal digits"))
    return ConfFile(tuple(entries), tuple(faults))


def _logical_lines(text: str) -> list[tuple[int, str]]:
    """Return lines with their numbers: continuation lines joined, comments and blank lines dropped."""
    lines = _LINE_END.split(text)
    joined: list[tuple[int, str]] = []
    index = 0
    while index < len(lines):
        number = index + 1
        line = lines[index].lstrip(_LEADING_BLANKS)
        index += 1
        if line.startswith(("#", "!")):
            continue  # a comment is never continued, even if it ends with a backslash
        while _ODD_BACKSLASHES.search(line):
            following = lines[index].lstrip(_LEADING_BLANKS) if index < len(lines) else ""
            line = line[:-1] + following
            index += 1
        if line:
            joined.append((number, line))
    return joined


def _split(line: str) -> tuple[str, str]:
    found = _SEPARATOR.search(line)
    if found is None:
        return line, ""
    return line[: found.start(1)], line[found.end() :]


def unescape(text: str) -> str:
    """Replace the escapes in a key or value; raise ValueError with the text of a bad escape."""
    if "\\" not in text:
        return text
    return _SURROGATE_PAIR.sub(_join_surrogates, _ESCAPE.sub(_one_escape, text))


def _one_escape(found: re.Match[str]) -> str:
    escape = found.group(1)
    if escape == "u":
        raise ValueError(found.string[found.start() : found.start() + 6])
    if len(escape) == 5:
        return chr(int(escape[1:], 16))
    return _NAMED_ESCAPES.get(escape, escape)


def _join_surrogates(pair: re.Match[str]) -> str:
    return pair.group().encode("utf-16", "surrogatepass").decode("utf-16")
