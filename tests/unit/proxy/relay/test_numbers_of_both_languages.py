"""Numbers that stand in Python and in Rust: each constant of the crate, read from its text, beside its twin."""

import re
from contextlib import suppress
from pathlib import Path
from types import ModuleType

import pytest

from protocol import slabs, topic_list
from proxy.config.values import MOST_IO_THREADS
from proxy.net.pump import RETRY_SECONDS
from proxy.net.transport import LEFT_TO_THE_KERNEL_BYTES
from proxy.overload.bounds import MOST_TOPICS
from proxy.relay import native_api, relay_log, topic_slots
from proxy.relay.memory import windows

NATIVE = Path(__file__).resolve().parents[4] / "native" / "src"
CONSTANT = re.compile(r"(?m)^(?:pub(?:\(\w+\))? )?const ([A-Z_]+): [^=]+ = ([^;]+);")
DIGITS = re.compile(r"(?<=[0-9])_(?:[iuf](?:8|16|32|64|128|size))?(?=[0-9]|\b)")


def numbers_of(file: str) -> dict[str, float]:
    """Return the constants of a file of the crate whose values are numbers in Python, too."""
    found: dict[str, float] = {}
    for name, written in CONSTANT.findall((NATIVE / file).read_text(encoding="utf-8")):
        with suppress(SyntaxError, NameError, TypeError):
            found[name] = eval(DIGITS.sub("", written).replace("/", "//"), {}, found)
    return found


@pytest.mark.parametrize(
    ("file", "twins"),
    [
        ("topic_list.rs", [topic_list, slabs]),
        ("relay/slots.rs", [topic_slots]),
        ("relay/windows.rs", [windows]),
        ("relay/stats.rs", [native_api]),
        ("relay/pair.rs", [native_api]),
        ("relay/tap.rs", [relay_log]),
    ],
)
def test_a_number_of_one_name_is_the_same_in_both_languages(file: str, twins: list[ModuleType]) -> None:
    rust = numbers_of(file)
    for twin in twins:
        python = {name.lstrip("_"): value for name, value in vars(twin).items()}
        # Kinds of commands in Rust are heads of frames in Python.
        both = rust.keys() & python.keys() - {"PRODUCER", "SEND", "SUBSCRIBE"}
        assert both
        assert {name: rust[name] for name in both} == {name: python[name] for name in both}


@pytest.mark.parametrize(
    ("file", "name", "twin"),
    [
        ("relay/pair.rs", "LEFT_TO_THE_KERNEL", LEFT_TO_THE_KERNEL_BYTES),
        ("relay/body.rs", "RETRY_MS", RETRY_SECONDS * 1_000),
        ("relay/slots.rs", "FLOORS", [topic_slots.BYTES_FLOOR, topic_slots.MESSAGES_FLOOR]),
        ("relay/producers.rs", "MOST_TOPIC_BYTES", topic_slots.MOST_NAME_BYTES),
        ("relay/slots.rs", "MOST_SLOTS", MOST_TOPICS),
        ("relay/engine.rs", "MOST_THREADS", MOST_IO_THREADS),
    ],
)
def test_a_number_of_two_names_is_the_same_in_both_languages(file: str, name: str, twin: object) -> None:
    assert numbers_of(file)[name] == twin
