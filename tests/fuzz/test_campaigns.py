"""What a campaign of the fuzzer is guided by: every reader of the protocol, and all of it instrumented."""

import ast
from pathlib import Path

import protocol
from tests.fuzz import results
from tests.fuzz.natively import NAMES
from tests.fuzz.targets import BY_NAME, TARGETS


def test_the_names_in_rust_are_targets_in_python() -> None:
    assert set(NAMES) <= BY_NAME.keys()
    crate = Path(results.__file__).with_name("native")
    assert {path.stem for path in (crate / "src/bin").glob("*.rs")} == {name.replace("-", "_") for name in NAMES}


def test_what_guides_a_target_is_instrumented() -> None:
    # The module needs Atheris: it is read, not imported.
    tree = ast.parse(Path(results.__file__).with_name("guided.py").read_text())
    (names,) = (
        ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "INSTRUMENTED"
    )
    for target in TARGETS:
        for module in target.modules:
            assert any(module == name or module.startswith(f"{name}.") for name in names), (target.name, module)


NO_READERS = {
    # These read nothing of a peer by themselves.
    "command_type", "errors", "host_port", "slabs", "states", "topics_hash",
}  # fmt: skip


def test_every_reader_of_the_protocol_guides_a_target() -> None:
    room = Path(protocol.__file__).parent
    guiding = {name for target in TARGETS for name in target.modules}
    readers = {path.stem for path in room.glob("*.py")} - {"__init__"} - NO_READERS
    assert {f"protocol.{name}" for name in readers} <= guiding
