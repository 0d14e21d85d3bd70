"""How many threads relays get: what the operator asked for, as far as it is here."""

from types import SimpleNamespace

import pytest

from proxy.config.config import Config, ConfigError
from proxy.core.native import NativeExtension
from proxy.core.version import VERSION
from proxy.relay.threads import RelayThreads, choose_threads

HERE = NativeExtension(SimpleNamespace(RelayEngine=object), "1.2")
MISSING = NativeExtension(None, missing="pulsar-proxy-native is not installed")
NO_ENGINE = NativeExtension(SimpleNamespace(), "1.2")
BROKER = {"brokerServiceURL": "pulsar://b"}


def chosen(extension: NativeExtension = HERE, /, processors: int = 2, **keys: str) -> RelayThreads:
    return choose_threads(Config.load(overrides=BROKER | keys), extension, processors)


@pytest.mark.parametrize(
    ("processors", "threads", "reason"), [(1, 1, "1 processor"), (3, 3, "3 processors"), (64, 4, "64 processors")]
)
def test_relays_have_a_thread_for_each_processor_up_to_four(processors: int, threads: int, reason: str) -> None:
    assert chosen(processors=processors) == RelayThreads(threads, reason)


def test_number_of_threads_is_the_operators() -> None:
    assert chosen(numIOThreads="7") == RelayThreads(7, "numIOThreads=7")
    assert chosen(numIOThreads="", processors=2).count == 2


def test_more_threads_than_the_extension_has_are_not_asked_for() -> None:
    assert chosen(numIOThreads="128") == RelayThreads(64, "numIOThreads=128, of which 64 are used")


@pytest.mark.parametrize("keys", [{}, {"relayEngine": "auto"}, {"relayEngine": "native"}])
@pytest.mark.parametrize(
    ("extension", "why"),
    [
        (MISSING, "pulsar-proxy-native is not installed"),
        (NO_ENGINE, "pulsar-proxy-native 1.2 has no relay engine"),
    ],
)
def test_a_proxy_that_needs_the_extension_is_told_how_to_get_it_or_to_do_without(
    extension: NativeExtension, why: str, keys: dict[str, str]
) -> None:
    with pytest.raises(ConfigError) as caught:
        choose_threads(Config.load(overrides=BROKER | keys), extension, 2)
    (problem,) = caught.value.problems
    assert str(problem) == (
        "command line: --without-extension: got nothing, expected this option, because "
        f"{why}; or install it: pip install pulsar-proxy-native=={VERSION}"
    )


@pytest.mark.parametrize("extension", [HERE, MISSING])
def test_a_proxy_that_does_without_uses_none(extension: NativeExtension) -> None:
    config = Config.load(overrides=BROKER, without_extension=True)
    assert choose_threads(config, extension, 2) == RelayThreads(0, "--without-extension")


def test_relays_need_a_thread() -> None:
    with pytest.raises(ConfigError, match="numIOThreads: got '0'"):
        chosen(numIOThreads="0")
