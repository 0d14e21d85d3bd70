import shlex
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

from tests.support.patience import patient
from tests.support.repeating import ROOT, command, commands

FAILING = "import pytest\n\n\n@pytest.mark.parametrize('word', ['a b'])\ndef test_fails(word):\n    assert not word\n"


def test_command_quotes_what_a_shell_would_split() -> None:
    assert command("tests/a.py::test[a b]", ROOT / ".venv" / "bin" / "python") == (
        ".venv/bin/python -m pytest 'tests/a.py::test[a b]'"
    )


def test_interpreter_of_another_place_is_named_in_full() -> None:
    assert command("tests/a.py", Path("/opt/python")) == "/opt/python -m pytest tests/a.py"


def test_test_that_fails_in_two_phases_is_repeated_once() -> None:
    call, teardown = SimpleNamespace(nodeid="a::b"), SimpleNamespace(nodeid="a::b")
    assert len(commands({"failed": [call], "error": [teardown], "passed": [SimpleNamespace(nodeid="a::c")]})) == 1


def test_failing_run_ends_with_the_command_and_then_with_the_line_of_pytest(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(FAILING)
    asked = [sys.executable, "-m", "pytest", "-q", "-p", "tests.conftest", "-p", "no:cacheprovider", str(tmp_path)]
    done = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, timeout=patient(60), check=False)
    lines = done.stdout.splitlines()
    (repeat,) = [line.removeprefix("repeat: ") for line in lines if line.startswith("repeat: ")]
    assert shlex.split(repeat)[-1].endswith("test_it.py::test_fails[a b]")
    assert lines[-1].startswith("1 failed in ")
