"""The commands for a container engine in the docs, without one: their keys, ports and times are this proxy's."""

import re
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
# Of `docker run`: those without a value.
FLAGS = {"-d", "--read-only"}


def runs() -> list[list[str]]:
    """Give the words behind each `docker run` that starts the proxy."""
    lines = [line for page in PAGES for line in not_run((ROOT / page).read_text(encoding="utf-8"))]
    return [shlex.split(line, comments=True)[2:] for line in lines if line.startswith("docker run ")]


def parsed(words: list[str]) -> tuple[dict[str, list[str]], list[str]]:
    """Give the options of a `docker run` and what stands behind the image."""
    options: dict[str, list[str]] = {}
    words = list(words)
    while words[0].startswith("-"):
        option = words.pop(0)
        options.setdefault(option, []).extend([] if option in FLAGS else [words.pop(0)])
    assert words[0] == IMAGE, words
    return options, words[1:]


def keys(options: dict[str, list[str]]) -> dict[str, str]:
    return dict(setting.split("=", 1) for setting in options.get("-e", []))


def seconds_to_stop() -> float:
    found = Config.load(None, {"brokerServiceURL": "pulsar://broker.example:6650"})
    return (found.shutdown_pre_drain_millis + found.shutdown_drain_millis) / 1000 + 5


each = pytest.mark.parametrize(
    "words", runs(), ids=lambda words: words[words.index("--name") + 1] if "--name" in words else "plain"
)


@each
def test_the_keys_of_a_run_are_the_proxy_s(words: list[str]) -> None:
    options, command = parsed(words)
    given = keys(options)
    assert set(given) <= {key.name for key in Config.keys()}  # noqa: SIM118
    assert command or Config.load(None, given).warnings == ()


@each
def test_what_stands_behind_the_image_is_a_command_whose_files_are_mounted(words: list[str]) -> None:
    options, command = parsed(words)
    mounted = [mount.split(":")[1] for mount in options.get("-v", [])]
    if command:
        config = whole_parser().parse_args(command).config
        assert any(Path(config).is_relative_to(path) for path in mounted), config


def test_whoever_stops_a_container_leaves_it_the_time_of_its_drain() -> None:
    text = "".join((ROOT / page).read_text(encoding="utf-8") for page in PAGES)
    # The long option has another name since Docker 28; the short one is the same in all.
    stops = re.findall(r"docker stop (\S+) (\S+)", text)
    assert {option for option, _ in stops} == {"-t"}
    given = [value for _, value in stops]
    given += [value for words in runs() for option, value in pairwise(words) if option == "--stop-timeout"]
    assert len(given) >= 4
    assert {float(re.sub(r"\D", "", value)) for value in given} == {seconds_to_stop()}
