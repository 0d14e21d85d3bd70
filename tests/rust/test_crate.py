"""rustfmt, clippy and the crate's own tests, and what proves more of them: models of the queues between threads, Miri,
ThreadSanitizer. The extension itself is tested from Python, beside what it stands in for.

A machine without cargo, or whose cargo lacks a part or cannot fetch the locked crates, checks nothing here,
which CI refuses. Miri and ThreadSanitizer need a nightly toolchain with `miri` and `rust-src`; CONTRIBUTING.md has
the commands.
"""

import json
import os
import re
import subprocess
from collections.abc import Mapping

import pytest

from scripts.build_native import ROOT
from scripts.crates import LICENCES, locked_crates
from tests.support.patience import patient
from tests.support.tools import tool, unusable

CRATE = ROOT / "native"
# The words of cargo and rustup for what a change of the crate cannot mend.
NOT_HERE = re.compile(
    r"no such command|is not installed|failed to (?:download|fetch|get)|unable to update|"
    r"could(?:n't| not) resolve host|requires rustc|lock file version|feature `edition|"
    r"unable to build with the standard library|sanitizer is not supported|only accepted on the nightly",
    re.IGNORECASE,
)
# Nothing installs a toolchain by the way.
ENVIRON = {"RUSTUP_AUTO_INSTALL": "0"}

pytestmark = pytest.mark.timeout(1200)


def cargo(*arguments: str, checks: str = "cargo", environ: Mapping[str, str] = ENVIRON) -> str:
    """Run cargo in the crate and return what it said; what is missing for `checks` skips, another fault fails."""
    done = subprocess.run(
        [tool("cargo"), *arguments], cwd=CRATE, capture_output=True, text=True, timeout=patient(900), check=False,
        env={**os.environ, **ENVIRON, **environ},
    )  # fmt: skip
    said = done.stderr + done.stdout
    if done.returncode:
        if lacking := NOT_HERE.search(said):
            line = said[: lacking.end()].splitlines()[-1]
            unusable(checks, f"cargo {arguments[0]}: {line}")
        pytest.fail(f"cargo {' '.join(arguments)}\n{said[-6000:]}", pytrace=False)
    return said


def passed(said: str) -> int:
    """Return how many tests of the crate passed, as cargo told."""
    return sum(map(int, re.findall(r"test result: ok\. (\d+) passed", said)))


def test_the_crate_is_formatted() -> None:
    cargo("fmt", "--check")


# Without the feature `python` the pure parts stand alone, as their tests do.
@pytest.mark.parametrize(
    "features",
    [[], ["--no-default-features"], ["--no-default-features", "--features", "loom"]],
    ids=["whole", "pure parts", "models"],
)
def test_clippy_has_nothing_to_say(features: list[str]) -> None:
    cargo("clippy", "--quiet", "--locked", "--all-targets", *features, "--", "-D", "warnings")


def test_the_crates_own_tests_pass() -> None:
    cargo("test", "--quiet", "--locked", "--no-default-features", "--features", "tls")


def test_licences_are_those_that_the_crates_declare() -> None:
    # Not quiet: the lines of a download stand before the document.
    said = cargo("metadata", "--locked", "--format-version", "1")
    found = json.loads(said[said.index("{") :])["packages"]
    declared = {(package["name"], package["version"]): package["license"] for package in found}
    _, crates = locked_crates()
    assert {crate.name: declared[crate.name, crate.version] for crate in crates} == LICENCES


def test_hand_over_queues_lose_nothing_in_any_order_of_steps() -> None:
    said = cargo("test", "--locked", "--no-default-features", "--features", "loom", "--lib", "--", "models")
    assert passed(said) >= 5, said


def test_pure_parts_have_no_undefined_behaviour() -> None:
    parts = (
        "tests::direction", "tests::scanner", "tests::producers::the_reads", "tests::queue::random", "topic_list",
        "wire",
    )  # fmt: skip
    said = cargo("+nightly", "miri", "test", "--locked", "--no-default-features", "--lib", "--", *parts, checks="miri")
    assert passed(said) >= 20, said


def test_threads_under_stress_have_no_race() -> None:
    [host] = re.findall(r"^host: (.+)$", cargo("-vV"), re.MULTILINE)
    said = cargo(
        "+nightly", "test", "--locked", "-Zbuild-std", "--target", host, "--no-default-features", "--lib", "--",
        "stress",
        checks="thread sanitizer",
        # A place of its own: other flags would build everything anew each time.
        environ={"RUSTFLAGS": "-Zsanitizer=thread", "CARGO_TARGET_DIR": str(CRATE / "target" / "tsan")},
    )  # fmt: skip
    assert passed(said) >= 2, said
