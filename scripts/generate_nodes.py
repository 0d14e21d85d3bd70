"""Write the table "What bounds what" of docs/architecture.md from the declaration of the nodes."""

from collections.abc import Iterator, Mapping
from fractions import Fraction
from pathlib import Path
from typing import Final

from proxy.app.memory.budget import MIB
from proxy.app.memory.nodes import NODES, Node, PartOf
from proxy.config.config import Config
from proxy.config.keys.key import Key
from scripts.generate_memory_docs import pod
from scripts.generated import ROOT, placed

PAGE: Final = ROOT / "docs" / "architecture.md"
MARKS: Final = ("<!-- nodes: written by scripts/generate_nodes.py, do not edit -->", "<!-- nodes: end -->")


def files() -> Mapping[Path, str]:
    return {PAGE: placed(PAGE, {MARKS: f"\n\n{chr(10).join(rows())}\n\n"})}


def rows() -> Iterator[str]:
    yield "| node | limit | by default | turns | who waits, who goes |"
    yield "|---|---|--:|---|---|"
    config = pod(None, {}).config
    for node in NODES:
        yield f"| {node.name} | {limit(node)} | {size(node, config)} | {node.turns or '-'} | {node.rule} |"


def limit(node: Node) -> str:
    match node[1]:
        case PartOf() as part_of:
            whole, part, percent = part_of
            of = whole.name if percent is None else f"`{percent.name}` % of {whole.name}"
            return f"all of {of}" if part == 1 else f"{Fraction(part)} of {of}"
        case Key() as key:
            return f"`{key.name}`"
        case _:
            return "constant"


def size(node: Node, config: Config) -> str:
    most = node.size(config)
    if not most:
        return "none"
    return f"{most / MIB:g} MiB" if node.unit == "bytes" else f"{most:,} {node.unit}"
