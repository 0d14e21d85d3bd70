"""Completion as a user has it: bash itself is asked what it would offer."""

import shutil
import sys
from pathlib import Path

import pytest

from proxy.cli import completions
from proxy.cli.completions import SCRIPTS, generated
from proxy.cli.main import main, whole_parser
from scripts.packaging.man import subcommands
from tests.support.programs import succeeded

# What bash does at the key: the function that `complete` registered is called with the words of the line.
ASK = """
eval "$SCRIPT"
[[ "$(complete -p pulsar-proxy)" =~ -F\\ ([^ ]+) ]]
COMP_WORDS=("$@")
COMP_CWORD=$(($# - 1))
COMP_LINE="$*"
COMP_POINT=${#COMP_LINE}
"${BASH_REMATCH[1]}" pulsar-proxy "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
printf '%s\\n' "${COMPREPLY[@]}"
"""
COMMANDS = {name for name, _, _ in subcommands(whole_parser())}


def offered(*words: str, directory: Path | None = None) -> set[str]:
    """Give what bash offers for the last word."""
    bash = shutil.which("bash")
    assert bash is not None
    asked = [bash, "--norc", "--noprofile", "-c", ASK, "complete", "pulsar-proxy", *words]
    environ = {"SCRIPT": generated("bash", whole_parser()), "PATH": "/usr/bin:/bin"}
    return set(succeeded(asked, env=environ, cwd=directory).split())


def test_commands_are_offered() -> None:
    assert offered("") >= COMMANDS
    assert offered("check") == {"check-config"}


def test_the_options_of_a_command_are_offered_and_no_others() -> None:
    assert offered("health", "--") == {"--help", "--config", "--timeout", "--json"}
    assert offered("top", "--in") == {"--interval"}


def test_the_choices_of_an_argument_are_offered() -> None:
    assert offered("log-level", "w") == {"warning"}
    assert offered("completion", "") >= {"bash", "fish", "zsh"}


def test_files_are_offered_where_a_file_is_wanted(tmp_path: Path) -> None:
    (tmp_path / "mine.conf").touch()
    assert offered("serve", "--config", "mi", directory=tmp_path) == {"mine.conf"}
    assert offered("top", "--interval", "mi", directory=tmp_path) == set()


@pytest.mark.parametrize("shell", SCRIPTS)
def test_the_script_of_the_package_is_printed_without_shtab(
    shell: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "shtab", None)
    monkeypatch.setattr(completions, "FOLDER", tmp_path)
    (tmp_path / SCRIPTS[shell]).write_text("packaged\n")
    assert main(["completion", shell]) == 0
    assert capsys.readouterr().out == "packaged\n"
