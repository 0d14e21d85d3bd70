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
    groups = [[" ".join(each.option_strings) for each in group._group_actions] for group in _groups(parser)]
    found: dict[str, Any] = {"options": {}, "arguments": [], "commands": {}, "exclusive": groups, "required": False}
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            found["commands"] = {name: described(each) for name, each in action.choices.items()}
            found["required"] = action.required
        elif action.option_strings:
            found["options"][" ".join(action.option_strings)] = facts(action)
        else:
            found["arguments"].append(facts(action))
    return found


def _groups(parser: argparse.ArgumentParser) -> list[argparse._MutuallyExclusiveGroup]:
    return parser._mutually_exclusive_groups


def facts(action: argparse.Action) -> dict[str, Any]:
    """Return what a caller can see of one option or argument."""
    named = action.dest.upper() if action.option_strings else action.dest
    return {
        "kind": type(action).__name__.strip("_"),
        "metavar": None if action.nargs == 0 else action.metavar or (None if action.choices else named),
        "nargs": action.nargs,
        "choices": list(map(str, action.choices)) if action.choices else None,
        "default": str(action.default),
        "required": action.required,
    }


def captured(parser: argparse.ArgumentParser, *_: object, **__: object) -> None:
    raise Parsed(parser)


def main() -> None:
    module, *words = sys.argv[1:]
    argparse.ArgumentParser.parse_args = captured  # type: ignore[method-assign,assignment]
    found = {}
    for word in words:
        sys.argv = [module, word]
        try:
            runpy.run_module(module, run_name="__main__", alter_sys=True)
        except Parsed as parsed:
            found[word] = described(*parsed.args)
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
