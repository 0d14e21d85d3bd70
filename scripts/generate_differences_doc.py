"""Write docs/reference/java-differences.md from the table of differences that the transcript tests check."""

import textwrap
from collections.abc import Mapping
from pathlib import Path

from scripts.generated import ROOT
from tests.transcripts.differences import REASONS
from tests.transcripts.rules import Rule
from tests.transcripts.scripts import SCRIPTS
from tests.transcripts.token_differences import TOKEN_REASONS

PAGE = ROOT / "docs/reference/java-differences.md"
INTRODUCTION = f"""\
<!-- Written by scripts/generate_differences_doc.py from tests/transcripts/differences.py; do not edit here. -->

# Differences from the Java proxy on the wire

{len(SCRIPTS)} short scripts (handshakes, requests and their failures, targets, credentials, what is no protocol at all)
were played before the Java proxy 4.0.8 with a stand-in for the broker behind it. What client and broker got is kept in
`tests/transcripts/recorded/`, and each test run plays the same scripts before this proxy. Here is every place where it
does otherwise, and why; a difference that is not listed fails the tests, as does one that is listed and not there.

"…" stands for any text, "&lt;last word>" for the last word of the script's name. *Where* names who got something, the
number of what it got, and the field.
"""


def cell(text: str | None) -> str:
    if text is None:
        return "nothing"
    # Not as code: these are words of the wire, no keys or metrics of ours.
    return text.replace("|", "\\|").replace("<", "&lt;") or "(empty)"


def row(rule: Rule) -> str:
    return f"| {cell(rule.scripts)} | {rule.where} | {cell(rule.java)} | {cell(rule.ours)} | {rule.times} |"


def page() -> str:
    lines = [INTRODUCTION]
    for title, reasons in (("Without authentication", REASONS), ("With tokens", TOKEN_REASONS)):
        lines += [f"## {title}", ""]
        for reason in reasons:
            lines += [f"### {reason.title}", "", *textwrap.wrap(reason.why, 120), ""]
            lines += ["| scripts | where | Java proxy | this proxy | times |", "|---|---|---|---|---|"]
            lines += [*map(row, reason.rules), ""]
    return "\n".join(lines).rstrip() + "\n"


def files() -> Mapping[Path, str]:
    return {PAGE: page()}
