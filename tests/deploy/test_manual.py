"""The manual pages: what mandoc thinks of them, and that nothing is left out."""

import argparse
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from proxy.cli.main import whole_parser
from proxy.config.config import Config
from scripts.packaging.man import pages, subcommands
from tests.support.programs import ran, succeeded
from tests.support.tools import tool

PAGES = pages()


def rendered(page: str) -> str:
    asked = [tool("mandoc"), "-Tascii", "-Owidth=200"]
    shown = succeeded(asked, input=PAGES[page])
    # A bold letter is printed, taken back and printed again.
    while (at := shown.find("\b")) >= 0:
        shown = shown[: at - 1] + shown[at + 1 :]
    return shown


@pytest.mark.parametrize("page", PAGES)
def test_mandoc_has_nothing_to_say_against_a_page(page: str, tmp_path: Path) -> None:
    file = tmp_path / page
    file.write_text(PAGES[page], encoding="utf-8")
    asked = [tool("mandoc"), "-Tlint", "-Wstyle", str(file)]
    said = ran(asked)
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
        for flag in set(re.findall(r"--[a-z][a-z-]*", command.format_usage())):
            assert f" {flag}" in part, f"{name} {flag}"


def test_each_key_is_shown() -> None:
    lines = [line.strip() for line in rendered("pulsar-proxy.conf.5").splitlines()]
    assert [key.name for key in Config.keys() if key.name not in lines] == []  # noqa: SIM118
