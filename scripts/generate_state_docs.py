"""Write docs/reference/states.md from the tables of protocol.states."""

from collections.abc import Iterator, Mapping
from pathlib import Path

from protocol.states import (
    DEFAULT_VERDICTS,
    MEANING,
    START,
    TRANSITIONS,
    VERDICTS,
    Role,
    State,
    Verdict,
    close_cause,
)
from scripts.generated import ROOT

TARGET = ROOT / "docs/reference/states.md"
NO_COMMAND = -1
HEAD = """\
<!-- Written by scripts/generate_state_docs.py from protocol/states.py; do not edit here. -->

# Connection states

A command's number and the state of its connection decide what happens to it:
"""
TITLES = {Role.CLIENT: "Towards a client", Role.BROKER: "Towards a broker"}


def render() -> str:
    """Build the whole page."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield HEAD
    yield from (f"- **{verdict.name}**: {verdict.value}" for verdict in Verdict)
    for role in Role:
        yield f"\n## {TITLES[role]}\n"
        yield from _diagram(role)
        yield ""
        yield from _table(role)


def _diagram(role: Role) -> Iterator[str]:
    yield "```mermaid"
    yield "stateDiagram-v2"
    yield f"    [*] --> {START[role].name}"
    for state, targets in TRANSITIONS[role].items():
        yield from (f"    {state.name} --> {target.name}" for target in targets)
        if not targets:
            yield f"    {state.name} --> [*]"
    yield "```"


def _table(role: Role) -> Iterator[str]:
    yield "| state | meaning | commands with a verdict of their own | any other |"
    yield "|---|---|---|---|"
    for state in TRANSITIONS[role]:
        default = _verdict_text(DEFAULT_VERDICTS[role, state], state, NO_COMMAND)
        yield f"| {state.name} | {MEANING[role, state]} | {_own_verdicts(role, state)} | {default} |"


def _own_verdicts(role: Role, state: State) -> str:
    groups: dict[str, list[str]] = {}
    for command_type, verdict in VERDICTS.get((role, state), {}).items():
        groups.setdefault(_verdict_text(verdict, state, command_type), []).append(command_type.name)
    return "; ".join(f"{text}: {', '.join(names)}" for text, names in groups.items()) or "none"


def _verdict_text(verdict: Verdict, state: State, command_type: int) -> str:
    if verdict is Verdict.CLOSE:
        return f"CLOSE `{close_cause(state, command_type)}`"
    return verdict.name


def files() -> Mapping[Path, str]:
    return {TARGET: render()}
