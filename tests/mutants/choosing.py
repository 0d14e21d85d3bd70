"""The mutants: a choice by lot of small changes that change what the product does, kept as data, and their places."""

import ast
import hashlib
import json
import random
from collections.abc import Container, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from itertools import zip_longest
from pathlib import Path
from typing import Final

from tests.mutants.covering import ROOT

CHOSEN: Final = Path(__file__).with_name("chosen.json")
_OF_THE_PROXY: Final = ("requests", "net", "relay", "clients", "auth", "brokers", "web")
ROOMS: Final = ("limiter", *(f"proxy/{room}" for room in _OF_THE_PROXY))
_OF_A_ROOM: Final = 15
_SEED: Final = 34
_OTHER: Final[dict[type[ast.cmpop], type[ast.cmpop]]] = {
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In
}  # fmt: skip
_EDGE: Final[dict[type[ast.cmpop], type[ast.cmpop]]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt
}  # fmt: skip


@dataclass(frozen=True)
class Mutant:
    """A line of a function, and what stands there instead; `nth` counts equal lines of the function from 0."""

    file: str
    function: str
    nth: int
    old: str
    new: str
    kind: str

    @property
    def name(self) -> str:
        text = f"{self.file} {self.function} {self.nth} {self.old} {self.new}"
        return hashlib.sha256(text.encode()).hexdigest()[:8]

    @property
    def room(self) -> str:
        return next(room for room in ROOMS if self.file.startswith(f"{room}/"))

    def line(self, tree: Path = ROOT) -> int | None:
        """Return the number of its line in a tree; None says that its place is gone."""
        path = tree / self.file
        function = _functions(path.read_text()).get(self.function) if path.exists() else None
        if function is None:
            return None
        first, last = function.lineno, function.end_lineno or 0
        lines = path.read_text().splitlines()
        equal = [number for number in range(first, last + 1) if lines[number - 1].strip() == self.old]
        return equal[self.nth] if self.nth < len(equal) else None

    def apply(self, tree: Path) -> None:
        """Change the line in a tree; a place that is gone is a ValueError."""
        number = self.line(tree)
        if number is None:
            raise ValueError(f"{self.file}: {self.function} has no such line")
        lines = (tree / self.file).read_text().splitlines(keepends=True)
        lines[number - 1] = lines[number - 1].replace(self.old, self.new)
        (tree / self.file).write_text("".join(lines))


_Function = ast.FunctionDef | ast.AsyncFunctionDef


@cache
def _functions(text: str) -> dict[str, _Function]:
    found: dict[str, _Function] = {}

    def walk(node: ast.AST, prefix: str) -> None:
        for child in ast.iter_child_nodes(node):
            name = f"{prefix}{child.name}" if isinstance(child, _Function | ast.ClassDef) else ""
            if isinstance(child, _Function):
                # The setter of a property has the getter's name.
                name += "'" * (name in found)
                found[name] = child
            walk(child, f"{name}." if name else prefix)

    walk(ast.parse(text), "")
    return found


def _changes(node: ast.AST) -> Iterator[tuple[str, ast.AST, str]]:
    """Yield kinds of change, the part that goes, and what stands there instead."""
    match node:
        case ast.Compare(ops=[op]):
            for kind, table in (("comparison", _OTHER), ("boundary", _EDGE)):
                if type(op) in table:
                    changed = ast.Compare(node.left, [table[type(op)]()], node.comparators)
                    yield kind, node, ast.unparse(changed)
        case ast.BoolOp(op, values):
            other = ast.Or() if isinstance(op, ast.And) else ast.And()
            yield "boolean", node, f"({ast.unparse(ast.BoolOp(other, values))})"
        case ast.UnaryOp(ast.Not(), operand):
            yield "boolean", node, f"({ast.unparse(operand)})"
        case ast.BinOp(left, ast.Add() | ast.Sub() as op, right) if not any(
            isinstance(side, ast.JoinedStr | ast.Constant | ast.List | ast.Tuple) and not _is_number(side)
            for side in (left, right)
        ):
            other_sign = ast.Sub() if isinstance(op, ast.Add) else ast.Add()
            yield "sign", node, f"({ast.unparse(ast.BinOp(left, other_sign, right))})"
        case ast.Constant(value) if _is_number(node):
            yield "constant", node, repr(value + 1)  # type: ignore[operator]
        case ast.Expr(ast.Call(function)) if "log" not in ast.unparse(function):
            yield "call", node, "pass"
        case ast.If(test) | ast.IfExp(test):
            yield "condition", test, "True"
            yield "condition", test, "False"


def _is_number(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and type(node.value) in (int, float)


def _running(node: ast.AST) -> Iterator[ast.AST]:
    """Yield what a function's body runs: no function in it, no annotation, no text."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, _Function | ast.ClassDef | ast.JoinedStr):
            continue
        yield child
        if isinstance(child, ast.AnnAssign):
            yield from () if child.value is None else _running(ast.Expr(child.value))
        else:
            yield from _running(child)


def candidates(file: str) -> Iterator[Mutant]:
    """Yield every mutant of a file that changes one line."""
    text = (ROOT / file).read_text()
    lines = text.splitlines()
    for name, function in _functions(text).items():
        body = ast.Module(function.body, [])
        for kind, part, new in (change for node in _running(body) for change in _changes(node)):
            number, line = part.lineno, lines[part.lineno - 1]  # type: ignore[attr-defined]
            if number != part.end_lineno or "\n" in new:  # type: ignore[attr-defined]
                continue
            start, end = part.col_offset, part.end_col_offset  # type: ignore[attr-defined]
            changed = (line.encode()[:start] + new.encode() + line.encode()[end:]).decode()
            before = [other.strip() for other in lines[function.lineno - 1 : number - 1]]
            if changed != line:
                yield Mutant(file, name, before.count(line.strip()), line.strip(), changed.strip(), kind)


def choose(set_aside: Container[str], known: Sequence[Mutant]) -> list[Mutant]:
    """Keep the mutants whose place is still there, and draw others of each room until it has its number.

    Each kind in turn, one of a function; one set aside is followed by another.
    """
    drawn: list[Mutant] = []
    for room in ROOMS:
        files = sorted(str(path.relative_to(ROOT)) for path in (ROOT / room).rglob("*.py"))
        lot = [mutant for file in files for mutant in candidates(file)]
        random.Random(f"{_SEED} {room}").shuffle(lot)
        kinds = sorted({mutant.kind for mutant in lot})
        kept = [mutant for mutant in known if mutant.room == room and mutant.line() is not None]
        taken = {(mutant.file, mutant.function): mutant for mutant in kept}
        while len(kept) < _OF_A_ROOM:
            kind = kinds[len(taken) % len(kinds)]
            mutant = next(each for each in lot if each.kind == kind and (each.file, each.function) not in taken)
            taken[mutant.file, mutant.function] = mutant
            if mutant.name not in set_aside:
                kept.append(mutant)
        drawn += kept
    return drawn


def chosen() -> list[Mutant]:
    """Return the mutants that are kept, one of each room in turn."""
    kept = [Mutant(**row) for row in json.loads(CHOSEN.read_text())["mutants"]]
    by_room = [[mutant for mutant in kept if mutant.room == room] for room in ROOMS]
    # A mutant goes with its function into another room, so rooms have more of them, or less.
    return [mutant for turn in zip_longest(*by_room) for mutant in turn if mutant is not None]


def write_choice() -> None:
    """Draw for the mutants whose place is gone, without those that were set aside, each with its reason."""
    aside = json.loads(CHOSEN.read_text())["set aside"]
    data = {"set aside": aside, "mutants": [asdict(mutant) for mutant in choose(aside, chosen())]}
    CHOSEN.write_text(json.dumps(data, indent=1) + "\n")
