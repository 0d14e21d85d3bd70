"""Print the parser that a module uses as JSON: `python -m scripts.surface.parser_dump MODULE WORD ...`.

The module runs as `python -m MODULE WORD` does, up to the moment when it parses its arguments: wherever it keeps its
parser, that is the one. Help texts are left out.
"""

import argparse
import json
import runpy
import sys
from typing import Any


class Parsed(Exception):
    """End the module at its first parse_args; holds the parser."""


def described(parser: argparse.ArgumentParser) -> dict[str, Any]:
    """Return options, arguments, exclusive groups and subcommands of a parser, at any depth."""
    found: dict[str, Any] = {"options": {}, "arguments": [], "commands": {}}
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            found["commands"] = {name: described(each) for name, each in action.choices.items()}
        elif action.option_strings:
            found["options"][" ".join(action.option_strings)] = facts(action)
        else:
            found["arguments"].append(facts(action))
    groups = ([" ".join(each.option_strings) for each in group._group_actions] for group in _groups(parser))
    return {**found, "exclusive": list(groups), "required": _required(parser)}


def _groups(parser: argparse.ArgumentParser) -> list[argparse._MutuallyExclusiveGroup]:
    return parser._mutually_exclusive_groups


def _required(parser: argparse.ArgumentParser) -> bool:
    return any(isinstance(action, argparse._SubParsersAction) and action.required for action in parser._actions)


def facts(action: argparse.Action) -> dict[str, Any]:
    """Return what a caller can see of one option or argument."""
    takes_value = action.nargs != 0
    metavar = action.metavar or (action.dest.upper() if action.option_strings else action.dest)
    return {
        "kind": type(action).__name__.strip("_"),
        "metavar": metavar if takes_value and not (action.choices and action.metavar is None) else None,
        "nargs": action.nargs,
        "choices": list(map(str, action.choices)) if action.choices else None,
        "default": str(action.default),
        "required": action.required,
    }


def captured(parser: argparse.ArgumentParser, *_: object, **__: object) -> None:
    raise Parsed(parser)


def parser_of(module: str, word: str) -> argparse.ArgumentParser:
    """Return the parser that a module uses when it is called with one word."""
    sys.argv = [module, word]
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except Parsed as parsed:
        (parser,) = parsed.args
        assert isinstance(parser, argparse.ArgumentParser)
        return parser
    raise SystemExit(f"{module} parsed no arguments")


def main() -> int:
    module, *words = sys.argv[1:]
    argparse.ArgumentParser.parse_args = captured  # type: ignore[method-assign,assignment]
    json.dump({word: described(parser_of(module, word)) for word in words}, sys.stdout)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
