"""The choice of the relay engine: threads of the native extension, or the event loop.

Rule: the choice is a pure function of what the operator asked for and what is here. Without the extension there is no
proxy, unless its operator has asked for one that does without; every choice comes with its reason.
`proxy/app/proxy.py` chooses, `log_ports` in `proxy/app/ports.py` logs the reason, `proxy/app/start_checks.py` finds the
error for `check-config`; the texts about the extension are in `proxy/core/native.py`.
"""

from dataclasses import dataclass
from typing import Final, Literal

from proxy.config.config import Config, ConfigError, ConfigProblem
from proxy.config.sources import COMMAND_LINE
from proxy.config.values import MOST_DEFAULT_IO_THREADS, MOST_IO_THREADS
from proxy.core.native import DO_WITHOUT, INSTALL, NativeExtension

EngineName = Literal["native", "asyncio"]

ENGINE_CLASS: Final = "RelayEngine"


@dataclass(frozen=True, slots=True)
class EngineChoice:
    """The engine for relays, its threads (0 for asyncio), and why, in words for the log."""

    name: EngineName
    threads: int
    reason: str


EVENT_LOOP: Final = EngineChoice("asyncio", 0, "nothing was chosen yet")


def choose_engine(
    config: Config, extension: NativeExtension, processors: int, *, tls: bool | None = None
) -> EngineChoice:
    """Return the engine that moves the bytes of relays.

    `tls`: no relay can be native, because TLS stands on one of its sides (None: as the configuration says).
    Raises ConfigError if the extension is not here, and the configuration is not one that does without.
    """
    if config.without_extension:
        return EngineChoice("asyncio", 0, DO_WITHOUT)
    if missing := missing_engine(extension):
        expected = f"this option, because {missing}; or install it: {INSTALL}"
        raise ConfigError([ConfigProblem(COMMAND_LINE, None, DO_WITHOUT, "nothing", expected)], [])
    if config.relay_engine == "asyncio":
        return EngineChoice("asyncio", 0, "relayEngine=asyncio")
    if config.num_io_threads == 0:
        return EngineChoice("asyncio", 0, "numIOThreads=0")
    if tls_everywhere(config) if tls is None else tls:
        return EngineChoice("asyncio", 0, "every relay has TLS on one side")
    asked = config.num_io_threads
    if asked is not None:
        used = "" if asked <= MOST_IO_THREADS else f", of which {MOST_IO_THREADS} are used"
        return EngineChoice("native", min(asked, MOST_IO_THREADS), f"numIOThreads={asked}{used}")
    threads = min(processors, MOST_DEFAULT_IO_THREADS)
    return EngineChoice("native", threads, f"{processors} processor{'s' * (processors > 1)}")


def tls_everywhere(config: Config) -> bool:
    """Return whether each relay of this configuration has TLS on one side at least."""
    return config.tls_enabled_with_broker or config.service_port is None


def missing_engine(extension: NativeExtension) -> str:
    """Return why the extension has no relay engine, nothing if it has one."""
    if extension.module is None or extension.has(ENGINE_CLASS):
        return extension.missing
    return f"pulsar-proxy-native {extension.version} has no relay engine"
