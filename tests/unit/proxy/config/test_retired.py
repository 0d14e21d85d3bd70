"""An upgrade with a file of 0.1.0: a retired key at its default is a warning, at another value an error."""

from collections.abc import Callable
from pathlib import Path

import pytest

from proxy.config.config import Config, ConfigError
from proxy.config.retired import RETIRED
from tests.support.each import each

BROKER = {"brokerServiceURL": "pulsar://b"}
KEPT = [(name, value) for name, retired in RETIRED.items() for value in retired.kept]


def from_flag(line: dict[str, str], _: Path) -> Config:
    return Config.load(overrides=BROKER | line)


def from_file(line: dict[str, str], directory: Path) -> Config:
    file = directory / "proxy.conf"
    file.write_text("".join(f"{name}={value}\n" for name, value in (BROKER | line).items()))
    return Config.load(file)


def from_environment(line: dict[str, str], _: Path) -> Config:
    return Config.load(environ=BROKER | line)


sources = pytest.mark.parametrize("source", [from_flag, from_file, from_environment])
Source = Callable[[dict[str, str], Path], Config]


@sources
@each("name, value", KEPT)
def test_a_key_that_asks_for_what_happens_anyway_is_a_warning(
    source: Source, name: str, value: str, tmp_path: Path
) -> None:
    (warning,) = source({name: value}, tmp_path).warnings
    assert str(warning).endswith(f"{name}: has no effect any more: remove it, the next version does not know it")


@each(
    "keys",
    [{"overloadMemoryHardWatermark": "0.950"}, {"tcpKeepAliveIdleSeconds": "060"}, {"relayReceiveBufferBytes": "00"}],
)
def test_a_number_may_be_written_in_another_way(keys: dict[str, str], tmp_path: Path) -> None:
    (warning,) = from_file(keys, tmp_path).warnings
    assert warning.key in keys


@each("keys", [{"overloadMemoryHardWatermark": "0.9500001"}, {"tcpKeepAliveIdleSeconds": "600"}])
def test_another_number_is_an_error(keys: dict[str, str], tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        from_file(keys, tmp_path)


@sources
@each("name", RETIRED)
def test_a_key_that_asks_for_anything_else_is_an_error_that_says_what_to_do(
    source: Source, name: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError) as caught:
        source({name: "7"}, tmp_path)
    assert f"{name}: got '7', expected no such key: {RETIRED[name].instead}" in str(caught.value)


@each("keys", [{"brokerSocketReceiveBufferBytes": "262144"}, {"maxHandshakeInFlightMemSizeMB": "4"}])
def test_what_the_charts_of_0_1_0_wrote_by_themselves_is_served(keys: dict[str, str], tmp_path: Path) -> None:
    (warning,) = from_file(keys, tmp_path).warnings
    assert warning.key in keys


@each("name, value", KEPT)
def test_no_live_change_sets_it(name: str, value: str) -> None:
    with pytest.raises(ConfigError, match=f"{name}: got .* expected no such key"):
        Config.load(overrides=BROKER).replace({name: value})
