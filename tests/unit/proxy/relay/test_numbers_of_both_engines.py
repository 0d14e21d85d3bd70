"""Numbers that stand in Python and in Rust: each constant of the crate beside its twin, read from the text of both."""

import ast
import operator
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[4]
NATIVE = ROOT / "native" / "src"
CONSTANT = re.compile(r"(?m)^(?:pub(?:\(\w+\))? )?const ([A-Z_]+): [^=]+ = ([^;]+);")
DIGITS = re.compile(r"(?<=[0-9])_(?:[iuf](?:8|16|32|64|128|size))?(?=[0-9]|\b)")
OPERATORS = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.floordiv,
    ast.FloorDiv: operator.floordiv,
    ast.LShift: operator.lshift,
    ast.BitOr: operator.or_,
}
# The files of a rule in Rust and in Python: what has the same name in both is the same number.
TWINS = {
    "topic_list.rs": ("protocol/topic_list.py", "protocol/slabs.py"),
    "relay/scanner.rs": ("protocol/scanner.py",),
    "relay/producers.rs": ("protocol/producer_scanner.py",),
    "relay/slots.rs": (
        "proxy/relay/rates/token_bucket.py",
        "proxy/relay/rates/slot_books.py",
        "proxy/relay/topic_slots.py",
    ),
    "relay/meter.rs": ("proxy/relay/rates/client_meter.py",),
    "relay/windows.rs": ("proxy/relay/memory/windows.py",),
    "relay/stats.rs": ("proxy/relay/native_api.py",),
    "relay/pair.rs": ("proxy/relay/native_api.py",),
}
# What has another name or unit: file and constant of the crate, file and name of the twin, units of Rust in one of it.
OTHER_NAMES = [
    ("relay/pair.rs", "LEFT_TO_THE_KERNEL", "proxy/net/transport.py", "LEFT_TO_THE_KERNEL_BYTES", 1),
    ("relay/body.rs", "RETRY_MS", "proxy/net/pump.py", "RETRY_SECONDS", 1_000),
    ("relay/slots.rs", "MAX_PAUSE_MS", "proxy/relay/rates/slot_books.py", "MAX_PAUSE_MILLIS", 1),
    ("relay/producers.rs", "MOST_TOPIC_BYTES", "proxy/relay/topic_slots.py", "MOST_NAME_BYTES", 1),
    ("relay/slots.rs", "MOST_SLOTS", "proxy/overload/bounds.py", "MOST_TOPICS", 1),
    ("relay/engine.rs", "MOST_THREADS", "proxy/config/values.py", "MOST_IO_THREADS", 1),
    ("relay/sys.rs", "SO_MEMINFO", "proxy/relay/memory/sockets.py", "SO_MEMINFO", 1),
    ("relay/sys.rs", "SIOCOUTQNSD", "proxy/relay/pooled/turns.py", "_SIOCOUTQNSD", 1),
    ("relay/sys.rs", "SO_BUF_LOCK", "proxy/net/listen/accept_loop.py", "_SO_BUF_LOCK", 1),
    ("relay/sys.rs", "RECEIVE_LOCKED", "proxy/net/listen/accept_loop.py", "_RECEIVE_LOCKED", 1),
    ("relay/stats.rs", "PAUSED_BY_WATCH", "proxy/relay/engine.py", "WATCH", 1),
    ("relay/pool.rs", "PAUSED_BY_POOL", "proxy/relay/engine.py", "POOL", 1),
    ("relay/stats.rs", "PAUSED_BY_THRESHOLD", "proxy/relay/engine.py", "THRESHOLD", 1),
    ("relay/stats.rs", "PAUSED_BY_RATE", "proxy/relay/engine.py", "RATE", 1),
]
FLOORS = ["proxy/relay/rates/token_bucket.py:BYTES_FLOOR", "proxy/relay/rates/token_bucket.py:MESSAGES_FLOOR"]


def number(node: ast.expr, known: dict[str, float]) -> float | None:
    """Return the number that an expression of constants is, None for anything else."""
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        return node.value
    if isinstance(node, ast.Name):
        return known.get(node.id.lstrip("_"))
    if isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
        left, right = number(node.left, known), number(node.right, known)
        if left is not None and right is not None:
            found: float = OPERATORS[type(node.op)](left, right)
            return found
    return None


def numbers_of_python(text: str) -> dict[str, float]:
    """Return the numbers that a module names in capitals, those of its classes too, without a leading underscore."""
    found: dict[str, float] = {}
    for node in ast.walk(ast.parse(text)):
        target = (
            node.targets[0]
            if isinstance(node, ast.Assign)
            else node.target
            if isinstance(node, ast.AnnAssign)
            else None
        )
        value = getattr(node, "value", None)
        if isinstance(target, ast.Name) and target.id.isupper() and value is not None:
            as_number = number(value, found | {"SLAB_BYTES": 256 * 1024})
            if as_number is not None:
                found[target.id.lstrip("_")] = as_number
    return found


def numbers_of_rust(text: str) -> dict[str, float]:
    """Return the constants of a file of the crate that are numbers."""
    found: dict[str, float] = {}
    for name, written in CONSTANT.findall(text):
        try:
            tree = ast.parse(DIGITS.sub("", written).strip(), mode="eval")
        except SyntaxError:
            continue
        as_number = number(tree.body, found)
        if as_number is not None:
            found[name] = as_number
    return found


def of_python(file: str) -> dict[str, float]:
    return numbers_of_python((ROOT / file).read_text(encoding="utf-8"))


def of_rust(file: str) -> dict[str, float]:
    return numbers_of_rust((NATIVE / file).read_text(encoding="utf-8"))


def unequal(rust: dict[str, float], python: dict[str, float]) -> list[str]:
    """Return the names of numbers that both have and that differ."""
    return [name for name in rust.keys() & python.keys() if rust[name] != python[name]]


@pytest.mark.parametrize("file", TWINS)
def test_a_number_of_one_name_is_the_same_in_both_languages(file: str) -> None:
    rust = of_rust(file)
    twins = [of_python(twin) for twin in TWINS[file]]
    assert any(rust.keys() & python.keys() for python in twins)
    assert [unequal(rust, python) for python in twins] == [[]] * len(twins)


@pytest.mark.parametrize(("file", "name", "twin", "its_name", "parts"), OTHER_NAMES, ids=lambda value: str(value))
def test_a_number_of_two_names_is_the_same_in_both_languages(
    file: str, name: str, twin: str, its_name: str, parts: int
) -> None:
    assert of_rust(file)[name] == of_python(twin)[its_name.lstrip("_")] * parts


def test_the_least_that_a_bucket_holds_is_the_same_in_both_languages() -> None:
    [floors] = re.findall(r"const FLOORS: \[f64; 2\] = \[([^]]+)\];", (NATIVE / "relay/slots.rs").read_text("utf-8"))
    files_and_names = [place.split(":") for place in FLOORS]
    wanted = [of_python(file)[name] for file, name in files_and_names]
    assert [float(DIGITS.sub("", part)) for part in floors.split(",")] == wanted
