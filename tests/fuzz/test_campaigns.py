"""How a campaign of the fuzzer is counted, which of its inputs are kept, and how many inputs the page stands on."""

import ast
import json
from pathlib import Path

import protocol
from tests.fuzz import results
from tests.fuzz.natively import NAMES
from tests.fuzz.reduced import reduced
from tests.fuzz.targets import BY_NAME, TARGETS

SAID = """
#131072\tpulse  cov: 204 ft: 611 corp: 90/12Kb lim: 4096 exec/s: 65536 rss: 40Mb
#262144\tDONE   cov: 210 ft: 640 corp: 95/13Kb lim: 4096 exec/s: 65536 rss: 40Mb
stat::number_of_executed_units: 262144
stat::average_exec_per_sec:     65536
"""


def test_inputs_and_edges_are_those_that_libfuzzer_says(tmp_path: Path) -> None:
    (tmp_path / "input").write_bytes(b"x")
    found = results.of_libfuzzer(SAID, 0, tmp_path)
    assert found == {"held": True, "inputs": 262144, "coverage": 210, "unit": "edges", "corpus": 1}
    assert not results.of_libfuzzer(SAID, 77, tmp_path)["held"]
    assert results.of_libfuzzer("no such target", 1, tmp_path)["inputs"] == 0


def test_inputs_of_a_campaign_add_up_and_a_broken_rule_stays_broken(tmp_path: Path) -> None:
    for held, inputs, coverage in ((True, 10, 3), (False, 5, 4), (True, 1, 5)):
        results.add(tmp_path, "token", {"held": held, "inputs": inputs, "coverage": coverage, "unit": "edges"})
    (record,) = json.loads((tmp_path / results.RECORD).read_text()).values()
    assert (record["inputs"], record["coverage"], record["held"]) == (16, 5, False)


def test_what_is_kept_leaves_targets_alone_that_were_not_fuzzed(tmp_path: Path) -> None:
    file, found = tmp_path / "kept.json", {"held": True, "coverage": 1, "unit": "edges"}
    for name, inputs in (("token", 10), ("http", 20)):
        campaign = tmp_path / name
        campaign.mkdir()
        results.add(campaign, name, {**found, "inputs": inputs})
        results.keep(campaign, file)
    assert {name: each["inputs"] for name, each in results.load(file).items()} == {"token": 10, "http": 20}


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


def test_a_corpus_is_reduced_to_what_reaches_further_than_seeds_and_smaller_inputs() -> None:
    target = BY_NAME["proxy-header"]
    seeds = target.seeds()
    # A header that is refused takes steps that no seed takes; the same with more behind it takes no other.
    refused = b"\x00PROXY TCP9 x\r\n"
    kept = reduced(target, [*seeds, refused, refused + b"more", seeds[0]])
    assert kept == [refused]
