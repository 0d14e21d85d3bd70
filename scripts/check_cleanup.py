"""Lint of code that gives something back: permits, slots, file descriptors, places.

A task may be cancelled at every `await`, also in a `finally` that a cancel has entered already: the statements after
that `await` never run then, and the permit is lost until the restart. The rules, for `finally`, for handlers that catch
a cancel (`except:`, `BaseException`, `CancelledError`), and for `__aexit__`:

- no statement follows an `await`, but `raise`, `return`, `break`, `continue` and `pass`. Write the give-back first, or
  `try: await ... finally: give_back()`;
- no `await` in a loop, and none inside the arguments of a call: the rest of the loop, or the call, would be skipped.

More rules: a permit in a local variable stands in a `try` or `with` before the next `await`; nothing follows the
`yield` of a context manager outside a `finally`; and an attribute that is True for the time of some calls becomes False
in a `finally`, or the work that it stands for never begins again after an exception.

`tests/unit/test_cleanup.py` has refused and passed examples of each rule.
"""

import ast
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("eventlog", "limiter", "pipeline", "protocol", "proxy")
GENERATED = ("protocol/pb/",)
AFTER_AWAIT = "stands after an await that a cancel may end: give back first, or in a finally of its own"
IN_LOOP = "awaits in a loop of a cleanup: a cancel skips the rest of the loop"
IN_CALL = "awaits inside a call of a cleanup: a cancel skips the call"
UNGUARDED = "awaits while a permit stands in no try: a cancel loses the permit"
STAYS_TRUE = "becomes False behind calls that may raise: reset it in a finally"
AFTER_YIELD = "stands after a yield outside a finally: an exception of the block skips the statement"

# Methods that return what has to be given back: a permit, a slot, a place, a reservation.
ACQUIRES = frozenset({"acquire", "begin", "enter", "reserve", "take", "try_acquire", "try_begin"})
_HARMLESS = (ast.Raise, ast.Return, ast.Break, ast.Continue, ast.Pass)
_CANCELS = frozenset({"BaseException", "CancelledError"})
_AWAITS = (ast.Await, ast.AsyncFor, ast.AsyncWith)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_LOOPS = (ast.For, ast.While, ast.AsyncFor)


@dataclass(frozen=True, order=True)
class Finding:
    """A statement that breaks a rule, its line and the rule."""

    line: int
    statement: str
    reason: str


def report(arguments: Sequence[str]) -> int:
    """Print the findings of the named files, or of all packages; return the exit status."""
    found = 0
    for path in _files(arguments or [str(ROOT / package) for package in PACKAGES]):
        name = path.resolve().relative_to(ROOT).as_posix()
        if name.startswith(GENERATED):
            continue
        for finding in check_source(path.read_text(encoding="utf-8")):
            print(f"{name}:{finding.line}: {finding.reason}\n    {finding.statement}")
            found += 1
    return int(found > 0)


def check_source(source: str) -> list[Finding]:
    """Return the faults of one module, by line."""
    found = set[Finding]()
    for node in ast.walk(ast.parse(source)):
        found.update(_faults_of(node))
    return sorted(found)


def _faults_of(node: ast.AST) -> Iterator[Finding]:
    if isinstance(node, ast.Try | ast.TryStar):
        yield from _late(node.finalbody)
        for handler in node.handlers:
            if handler.type is None or _CANCELS & set(_names(handler.type)):
                yield from _late(handler.body)
    if isinstance(node, ast.AsyncFunctionDef) and node.name == "__aexit__":
        yield from _late(node.body)
    for statements in _lists_of(node):
        yield from _unguarded(statements)
        yield from _staying_true(statements)
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        decorators = [name for decorator in node.decorator_list for name in _names(decorator)]
        if any(name.endswith("contextmanager") for name in decorators):
            yield from _after_yield(node)


def _late(statements: list[ast.stmt], *, awaited: bool = False) -> Iterator[Finding]:
    """Yield the statements of a cleanup that stand after an `await`, and awaits that others stand after."""
    for statement in statements:
        if awaited and not isinstance(statement, _HARMLESS):
            yield _fault(statement, AFTER_AWAIT)
        if _awaits(statement):
            yield from _within(statement)
            awaited = True


def _within(statement: ast.stmt) -> Iterator[Finding]:
    if isinstance(statement, _LOOPS):
        yield _fault(statement, IN_LOOP)
    elif isinstance(statement, ast.If):
        yield from _late(statement.body, awaited=_awaits(statement.test))
        yield from _late(statement.orelse, awaited=_awaits(statement.test))
    elif isinstance(statement, ast.With):
        yield from _late(statement.body)
    elif isinstance(statement, ast.AsyncWith):
        yield from _late(statement.body, awaited=_names_of_items(statement) != ["timeout"])
    elif isinstance(statement, ast.Try | ast.TryStar):
        # The inner `finally` and the handlers of cancels are cleanups of their own.
        yield from _late(statement.body)
        yield from _late(statement.orelse, awaited=any(map(_awaits, statement.body)))
    elif any(isinstance(call, ast.Call) and _awaits_in_arguments(call) for call in _walk(statement)):
        yield _fault(statement, IN_CALL)


def _unguarded(statements: list[ast.stmt]) -> Iterator[Finding]:
    """Yield the first statement that awaits between a local variable's acquire and the `try` or `with` of it."""
    for at, statement in enumerate(statements):
        if not isinstance(statement, ast.Assign) or not isinstance(statement.targets[0], ast.Name):
            continue
        if not _acquires(statement.value):
            continue
        for later in statements[at + 1 :]:
            if isinstance(later, ast.Try | ast.TryStar | ast.With | ast.AsyncWith):
                break
            if _awaits(later):
                yield _fault(later, UNGUARDED)
                break


def _staying_true(statements: list[ast.stmt]) -> Iterator[Finding]:
    """Yield the statements that reset what a statement before them, with calls in between, has set to True."""
    standing = set[str]()
    called = set[str]()
    for statement in statements:
        if called & (reset := _set_to(statement, False)):
            yield _fault(statement, STAYS_TRUE)
        standing -= reset
        called -= reset
        if any(isinstance(found, ast.Call | ast.Await) for found in _walk(statement)):
            called |= standing
        standing |= _set_to(statement, True)


def _set_to(statement: ast.stmt, value: bool) -> set[str]:
    """Return the attributes that a statement sets to a constant."""
    if not isinstance(statement, ast.Assign) or not isinstance(statement.value, ast.Constant):
        return set()
    if statement.value.value is not value:
        return set()
    return {ast.unparse(target) for target in statement.targets if isinstance(target, ast.Attribute)}


def _after_yield(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[Finding]:
    for node in _walk(function):
        for statements in _lists_of(node):
            if isinstance(node, ast.Try | ast.TryStar) and statements is node.body:
                continue
            for before, statement in pairwise(statements):
                if isinstance(before, ast.Expr) and isinstance(before.value, ast.Yield):
                    yield _fault(statement, AFTER_YIELD)


def _lists_of(node: ast.AST) -> Iterator[list[ast.stmt]]:
    for name in ("body", "orelse", "finalbody"):
        found = getattr(node, name, None)
        if isinstance(found, list):
            yield found


def _walk(node: ast.AST) -> Iterator[ast.AST]:
    """Yield a node and all that runs as a part of it: functions that it only defines do not."""
    todo = [node]
    while todo:
        found = todo.pop()
        yield found
        todo += [child for child in ast.iter_child_nodes(found) if not isinstance(child, _FUNCTIONS)]


def _awaits(node: ast.AST) -> bool:
    return not isinstance(node, _FUNCTIONS) and any(isinstance(found, _AWAITS) for found in _walk(node))


def _awaits_in_arguments(call: ast.Call) -> bool:
    return any(map(_awaits, [*call.args, *(keyword.value for keyword in call.keywords)]))


def _acquires(value: ast.expr) -> bool:
    call = value.value if isinstance(value, ast.Await) else value
    return isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr in ACQUIRES


def _names(node: ast.expr) -> list[str]:
    """Return the last names of an expression: of an exception or a tuple of exceptions, or of a decorator."""
    if isinstance(node, ast.Tuple):
        return [name for element in node.elts for name in _names(element)]
    if isinstance(node, ast.Call):
        return _names(node.func)
    return [node.attr] if isinstance(node, ast.Attribute) else [node.id] if isinstance(node, ast.Name) else []


def _names_of_items(statement: ast.AsyncWith) -> list[str]:
    return [name for item in statement.items for name in _names(item.context_expr)]


def _fault(statement: ast.stmt, reason: str) -> Finding:
    return Finding(statement.lineno, ast.unparse(statement).partition("\n")[0], reason)


def _files(paths: Iterable[str]) -> Iterator[Path]:
    for path in map(Path, paths):
        yield from sorted(path.rglob("*.py")) if path.is_dir() else [path]


if __name__ == "__main__":
    sys.exit(report(sys.argv[1:]))
