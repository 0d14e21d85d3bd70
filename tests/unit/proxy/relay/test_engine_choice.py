"""Which engine relays get: what the operator asked for, as far as it is here."""

from types import SimpleNamespace

import pytest

from proxy.config.config import Config, ConfigError
from proxy.core.native import NativeExtension
from proxy.core.version import VERSION
from proxy.relay.engine_choice import EngineChoice, choose_engine

HERE = NativeExtension(SimpleNamespace(RelayEngine=object), "1.2")
MISSING = NativeExtension(None, missing="pulsar-proxy-native is not installed")
NO_ENGINE = NativeExtension(SimpleNamespace(), "1.2")


def chosen(extension: NativeExtension = HERE, /, processors: int = 2, **keys: str) -> EngineChoice:
    return choose_engine(Config.load(overrides={"brokerServiceURL": "pulsar://b"} | keys), extension, processors)


@pytest.mark.parametrize("engine", ["auto", "native"])
@pytest.mark.parametrize(
    ("processors", "threads", "reason"), [(1, 1, "1 processor"), (3, 3, "3 processors"), (64, 4, "64 processors")]
)
def test_native_relays_have_a_thread_for_each_processor_up_to_four(
    engine: str, processors: int, threads: int, reason: str
) -> None:
    assert chosen(processors=processors, relayEngine=engine) == EngineChoice("native", threads, reason)


def test_number_of_threads_is_the_operators() -> None:
    assert chosen(numIOThreads="7") == EngineChoice("native", 7, "numIOThreads=7")
    assert chosen(numIOThreads="", processors=2).threads == 2


def test_more_threads_than_the_extension_has_are_not_asked_for() -> None:
    assert chosen(numIOThreads="128") == EngineChoice("native", 64, "numIOThreads=128, of which 64 are used")


@pytest.mark.parametrize(
    ("keys", "reason"),
    [
        ({"relayEngine": "asyncio"}, "relayEngine=asyncio"),
        ({"numIOThreads": "0"}, "numIOThreads=0"),
    ],
)
def test_event_loop_relays_where_the_extension_cannot(keys: dict[str, str], reason: str) -> None:
    assert chosen(HERE, 2, **keys) == EngineChoice("asyncio", 0, reason)


@pytest.mark.parametrize("engine", ["auto", "asyncio", "native"])
@pytest.mark.parametrize(
    ("extension", "why"),
    [
        (MISSING, "pulsar-proxy-native is not installed"),
        (NO_ENGINE, "pulsar-proxy-native 1.2 has no relay engine"),
    ],
)
def test_a_proxy_that_needs_the_extension_is_told_how_to_get_it_or_to_do_without(
    extension: NativeExtension, why: str, engine: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        chosen(extension, relayEngine=engine)
    (problem,) = caught.value.problems
    assert str(problem) == (
        "command line: --without-extension: got nothing, expected this option, because "
        f"{why}; or install it: pip install pulsar-proxy-native=={VERSION}"
    )


@pytest.mark.parametrize("extension", [HERE, MISSING])
def test_a_proxy_that_does_without_uses_none(extension: NativeExtension) -> None:
    config = Config.load(overrides={"brokerServiceURL": "pulsar://b"}, without_extension=True)
    assert choose_engine(config, extension, 2) == EngineChoice("asyncio", 0, "--without-extension")


def test_native_engine_needs_a_thread() -> None:
    with pytest.raises(ConfigError) as caught:
        chosen(relayEngine="native", numIOThreads="0")
    (problem,) = caught.value.problems
    assert str(problem).endswith(
        "numIOThreads: got 0, expected at least 1, or an empty value, with relayEngine=native: its relays need a thread"
    )


def test_threads_without_effect_are_told() -> None:
    config = Config.load(overrides={"brokerServiceURL": "pulsar://b", "relayEngine": "asyncio", "numIOThreads": "8"})
    (warning,) = config.warnings
    assert str(warning).endswith("numIOThreads: 8 has no effect with relayEngine=asyncio")
