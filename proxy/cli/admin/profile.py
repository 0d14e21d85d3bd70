"""The command `pulsar-proxy admin profile`: print a profile of a running proxy, as a table or for other tools."""

import argparse
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from proxy.cli.admin.client import LONG_PATIENCE_SECONDS, AdminClient
from proxy.cli.admin.options import BadOptions
from proxy.web.admin.routes import LONGEST_PROFILE_SECONDS

MOST_FUNCTIONS: Final = 40
_LEAST_SECONDS: Final = 0.1


def show_profile(client: AdminClient, options: argparse.Namespace) -> int:
    """Ask for a profile, print it, and return the exit code; raise BadOptions."""
    if not _LEAST_SECONDS <= options.seconds <= LONGEST_PROFILE_SECONDS:
        raise BadOptions(
            f"--seconds: got {options.seconds:g}, expected {_LEAST_SECONDS:g} to {LONGEST_PROFILE_SECONDS:g}"
        )
    document = client.ask("POST", "/v1/profile", {"seconds": options.seconds}, LONG_PATIENCE_SECONDS)
    if options.json:
        print(json.dumps(document, separators=(",", ":")))
        return 0
    for line in folded(document) if options.folded else table(document):
        print(line)
    return 0


def folded(document: Mapping[str, Any]) -> Iterator[str]:
    """Yield a line for each stack: thread and calls with semicolons between, and the number of samples."""
    functions = [name.replace(";", ":") for name in document["functions"]]
    for stack in document["stacks"]:
        calls = [stack["thread"].replace(";", ":"), *(functions[number] for number in stack["calls"])]
        yield f"{';'.join(calls)} {stack['samples']}"


def table(document: Mapping[str, Any]) -> Iterator[str]:
    """Yield the threads with their processor time, then for each thread the functions that were innermost most often.

    IN: the part of the thread's samples with the function among its calls; SELF: with the function innermost.
    """
    yield f"{document['samples']} looks in {document['seconds']} s"
    yield "CPU S  THREAD"
    for thread in document["threads"]:
        yield f"{thread['cpu_seconds']:5.2f}  {thread['name']}"
    by_thread: dict[str, list[Mapping[str, Any]]] = {}
    for stack in document["stacks"]:
        by_thread.setdefault(stack["thread"], []).append(stack)
    for name, stacks in by_thread.items():
        yield ""
        yield f"thread {name}"
        yield from _functions(stacks, document["functions"])
    if document["left_out"]:
        yield f"left out: {document['left_out']} samples of further stacks"


def _functions(stacks: Sequence[Mapping[str, Any]], functions: Sequence[str]) -> Iterator[str]:
    innermost: Counter[int] = Counter()
    among: Counter[int] = Counter()
    for stack in stacks:
        if stack["calls"]:
            innermost[stack["calls"][-1]] += stack["samples"]
        among.update(dict.fromkeys(stack["calls"], stack["samples"]))
    total = sum(stack["samples"] for stack in stacks)
    yield "  SELF     IN  FUNCTION"
    ordered = sorted(among, key=lambda number: (-innermost[number], -among[number]))
    for number in ordered[:MOST_FUNCTIONS]:
        yield f"{innermost[number] / total:6.1%} {among[number] / total:6.1%}  {functions[number]}"
