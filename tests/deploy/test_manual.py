"""The manual pages: what mandoc thinks of them, and that nothing is left out."""

import argparse
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from proxy.cli.main import whole_parser
from proxy.config.config import Config
from scripts.packaging.man import commands, escaped, pages, prose, sentence, subcommands
from tests.support.patience import patient
from tests.support.tools import tool

PAGES = pages()


def rendered(page: str) -> str:
    asked = [tool("mandoc"), "-Tascii", "-Owidth=200"]
    shown = subprocess.run(
        asked, input=PAGES[page], capture_output=True, text=True, timeout=patient(60), check=True
    ).stdout
    # A bold letter is printed, taken back and printed again.
    while (at := shown.find("\b")) >= 0:
        shown = shown[: at - 1] + shown[at + 1 :]
    return shown


@pytest.mark.parametrize("page", PAGES)
def test_mandoc_has_nothing_to_say_against_a_page(page: str, tmp_path: Path) -> None:
    file = tmp_path / page
    file.write_text(PAGES[page], encoding="utf-8")
    asked = [tool("mandoc"), "-Tlint", "-Wstyle", str(file)]
    said = subprocess.run(asked, capture_output=True, text=True, timeout=patient(60), check=False)
    # Each page names the other, and neither need be installed here.
    assert [line for line in said.stdout.splitlines() if "referenced manual not found" not in line] == []


def leaves(parser: argparse.ArgumentParser, above: str = "") -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """Yield each command that does something, with the words that call it."""
    for name, _, command in subcommands(parser):
        below = list(leaves(command, f"{above}{name} "))
        yield from below or [(above + name, command)]


def test_each_command_and_each_of_its_options_is_shown() -> None:
    shown = rendered("pulsar-proxy.1")
    for name, command in leaves(whole_parser()):
        part = shown.partition("\nCOMMANDS")[2].partition(f"\n   {name}\n")[2]
        assert part, name
        for action in command._actions:
            for flag in set(action.option_strings) - {"-h", "--help"}:
                assert f" {flag}" in part, f"{name} {flag}"


def test_each_key_is_shown() -> None:
    lines = [line.strip() for line in rendered("pulsar-proxy.conf.5").splitlines()]
    assert [key.name for key in Config.keys() if key.name not in lines] == []  # noqa: SIM118


def test_files_and_examples_are_shown_and_each_example_can_be_parsed() -> None:
    shown = rendered("pulsar-proxy.1")
    assert "/etc/pulsar-proxy/proxy.conf" in shown.partition("\nFILES\n")[2].partition("\nEXIT STATUS\n")[0]
    examples = shown.partition("\nEXAMPLES\n")[2].partition("\nSIGNALS\n")[0]
    told = [line.split()[1:] for line in examples.splitlines() if line.split()[:1] == ["pulsar-proxy"]]
    assert [words[0] for words in told] == ["check-config", "serve", "top", "admin"]
    for words in told:
        whole_parser().parse_args(words)


def test_a_command_below_a_command_has_a_section_of_its_own() -> None:
    parser = whole_parser()
    [(_, _, top)] = [found for found in subcommands(parser) if found[0] == "top"]
    top.add_subparsers().add_parser("deep", help="look deeper").add_argument("--far", metavar="N", help="how far")
    lines = list(commands(parser))
    assert lines[lines.index(".Ss top deep") :][:5] == [
        ".Ss top deep", "Look deeper.", ".Bl -tag -width Ds", ".It Fl -far Ar N", "How far.",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("First one. Second one.", ["First one.", "Second one."]),
        ("Spoken with TLS. Empty: none.", ["Spoken with TLS.", "Empty: none."]),
        (".profile is no macro", ["\\&.profile is no macro"]),
        ("a \\ is no escape", ["a \\e is no escape"]),
    ],
)
def test_text_is_never_a_macro_and_sentences_stand_on_lines_of_their_own(text: str, lines: list[str]) -> None:
    assert list(prose(text)) == lines


def test_a_name_at_the_beginning_keeps_its_case() -> None:
    assert sentence("run the proxy") == "Run the proxy."
    assert sentence("proxy.conf (the environment overrides it)") == "proxy.conf (the environment overrides it)."
    assert sentence("logLevel of it") == "logLevel of it."
    assert escaped("`code`") == "code"
