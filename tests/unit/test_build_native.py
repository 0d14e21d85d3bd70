"""`make` builds the native extension where that is possible, and says in one line why not where it is not.

The environment's Python is a script here that keeps in a file what it has installed, and cargo is what a test needs.
"""

import stat
import time
from pathlib import Path

import pytest

from scripts.build_native import Build, bring_up_to_date
from tests.support.patience import patient

# As maturin does, it leaves the work to cargo and puts a wheel, which is what cargo says here, where it is told to. It
# takes nothing from the network that no hash names, and imports what is installed.
PYTHON = """#!/bin/sh
for last; do :; done
case "$*" in
  *" maturin build "*" --release --locked "*)
    made=$(cargo build) || { echo "$made"; exit 1; }
    mkdir -p "$last" && echo "$made" > "$last/pulsar_proxy_native-1-cp311-abi3-linux_x86_64.whl" ;;
  *" pip "*" install --require-hashes "*) ;;
  *" pip "*" install --no-index "*) read -r wheel < "$last" && printf %s "$wheel" > "$0.has" ;;
  *" pip "*" uninstall "*) : > "$0.has" ;;
  "-c import pulsar_proxy_native") [ -s "$0.has" ] ;;
  *) echo "error: unexpected: $*"; exit 1 ;;
esac
"""
WORKING, FAILING = "echo built", "echo 'warning: unused'; echo 'error[E0308]: mismatched types'; echo later; exit 101"


class Checkout:
    """A checkout with a crate of one file, and an environment."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.python = root / ".venv" / "bin" / "python"
        self.programs = root / "programs"
        for folder in (root / "native" / "src", root / "requirements", self.python.parent, self.programs):
            folder.mkdir(parents=True)
        (root / "native" / "Cargo.toml").write_text("[package]\n")
        (root / "native" / "Cargo.lock").write_text("version = 4\n")
        self.change("// a crate\n")
        (root / "requirements" / "native.txt").write_text("maturin==1\n")
        self._program(self.python, PYTHON)

    def change(self, source: str) -> None:
        (self.root / "native" / "src" / "lib.rs").write_text(source)

    def cargo(self, script: str | None) -> None:
        path = self.programs / "cargo"
        if script is None:
            path.unlink(missing_ok=True)
        else:
            self._program(path, f"#!/bin/sh\n{script}\n")

    def build(self, limit_seconds: float = 60.0) -> Build:
        # The shell's own programs are needed, a cargo of this machine is not.
        environ = {"PATH": f"{self.programs}:{self._plain_programs()}"}
        return Build(self.root, str(self.python), limit_seconds, environ)

    def installed(self) -> str:
        """Return what the installed wheel has, nothing without one."""
        has = self.python.with_name("python.has")
        return has.read_text().strip() if has.exists() else ""

    def _plain_programs(self) -> Path:
        folder = self.root / "plain"
        folder.mkdir(exist_ok=True)
        for name in ("mkdir", "sleep", "sh"):
            if not (folder / name).exists():
                (folder / name).symlink_to(Path("/bin") / name)
        return folder

    @staticmethod
    def _program(path: Path, text: str) -> None:
        path.write_text(text)
        path.chmod(path.stat().st_mode | stat.S_IXUSR)


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path)


def test_extension_is_built_once_for_a_tree_and_installed(
    checkout: Checkout, capsys: pytest.CaptureFixture[str]
) -> None:
    checkout.cargo(WORKING)
    assert bring_up_to_date(checkout.build()) is None
    assert checkout.installed() == "built"
    said = "building the native extension, once for this state of native/: about half a minute\n"
    assert capsys.readouterr().out == said
    checkout.cargo("echo again")
    assert bring_up_to_date(checkout.build()) is None
    assert (checkout.installed(), capsys.readouterr().out) == ("built", "")


@pytest.mark.parametrize("changed", ["native/src/lib.rs", "native/Cargo.lock", "requirements/native.txt"])
def test_changed_tree_is_built_anew(checkout: Checkout, changed: str) -> None:
    checkout.cargo(WORKING)
    bring_up_to_date(checkout.build())
    (checkout.root / changed).write_text("other\n")
    checkout.cargo("echo again")
    assert bring_up_to_date(checkout.build()) is None
    assert checkout.installed() == "again"


def test_wheel_that_cannot_be_imported_is_none(checkout: Checkout) -> None:
    checkout.cargo("echo")
    assert "the build failed" in str(bring_up_to_date(checkout.build()))


def test_without_cargo_one_line_says_so(checkout: Checkout, capsys: pytest.CaptureFixture[str]) -> None:
    line = bring_up_to_date(checkout.build())
    assert line == "no native extension: there is no cargo here (https://rustup.rs has it)"
    assert bring_up_to_date(checkout.build()) == line
    assert capsys.readouterr().out == ""
    assert checkout.installed() == ""


def test_failed_build_is_told_with_its_first_error_and_not_tried_again_unasked(checkout: Checkout) -> None:
    checkout.cargo(FAILING)
    line = bring_up_to_date(checkout.build())
    assert line == "no native extension: the build failed: error[E0308]: mismatched types"
    checkout.cargo(WORKING)
    assert bring_up_to_date(checkout.build()) == f"{line}; make native tries again"
    assert checkout.installed() == ""
    assert bring_up_to_date(checkout.build(), again=True) is None
    assert checkout.installed() == "built"


def test_slow_build_is_ended_with_its_children(checkout: Checkout) -> None:
    # The compiler is a child of cargo.
    checkout.cargo(f"sleep 600 & echo $! > '{checkout.root}/compiler'; wait")
    line = bring_up_to_date(checkout.build(limit_seconds=1.0))
    assert line == "no native extension: the build took more than 1 s"
    pid = checkout.root / "compiler"
    if pid.exists() and pid.read_text().strip():
        deadline = time.monotonic() + patient(10)
        # Whoever is killed has closed its pipes a moment before it has ended.
        while not ended(int(pid.read_text())):
            assert time.monotonic() < deadline


def ended(pid: int) -> bool:
    try:
        return "\nState:\tZ" in Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return True
