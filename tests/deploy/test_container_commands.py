"""The commands that start a container in the docs, without an engine: their keys and files are this proxy's."""

import shlex
from itertools import pairwise
from pathlib import Path

import pytest

from proxy.cli.main import whole_parser
from proxy.config.config import Config
from tests.support.walkthrough import not_run

ROOT = Path(__file__).resolve().parents[2]
PAGES = ("docs/operations.md", "deploy/image/README.md")
IMAGE = "pulsar-proxy"


def runs() -> list[list[str]]:
    """Give the words behind each `docker run` that starts the proxy."""
    lines = [line for page in PAGES for line in not_run((ROOT / page).read_text(encoding="utf-8"))]
    return [shlex.split(line, comments=True)[2:] for line in lines if line.startswith("docker run ")]


@pytest.mark.parametrize("words", runs())
def test_the_keys_of_a_run_are_the_proxy_s_and_its_file_is_mounted(words: list[str]) -> None:
    # A container may have the name of the image.
    at = len(words) - 1 - words[::-1].index(IMAGE)
    options, command = words[:at], words[at + 1 :]

    def given(option: str) -> list[str]:
        return [value for name, value in pairwise(options) if name == option]

    keys = dict(setting.split("=", 1) for setting in given("-e"))
    assert set(keys) <= {key.name for key in Config.keys()}  # noqa: SIM118
    if not command:
        assert Config.load(None, keys).warnings == ()
    else:
        config = whole_parser().parse_args(command).config
        assert any(Path(config).is_relative_to(mount.split(":")[1]) for mount in given("-v")), config
