"""How many threads move the bytes of relays, and why: a pure function of what the operator asked for and what is here.

Rule: without the extension there is no proxy, unless its operator has asked for one that does without.
`proxy/app/proxy.py` chooses, `log_ports` in `proxy/app/ports.py` logs the reason, `proxy/app/start_checks.py` finds the
error for `check-config`; the texts about the extension are in `proxy/core/native.py`.
"""

from dataclasses import dataclass
from typing import Final

from proxy.config.config import Config, ConfigError, ConfigProblem
from proxy.config.sources import COMMAND_LINE
from proxy.config.values import MOST_DEFAULT_IO_THREADS, MOST_IO_THREADS
from proxy.core.native import DO_WITHOUT, INSTALL, NativeExtension

ENGINE_CLASS: Final = "RelayEngine"


@dataclass(frozen=True, slots=True)
class RelayThreads:
    """The threads of the native engine, 0 without the extension, and why so many, in words for the log."""

    count: int
    reason: str


NO_THREADS: Final = RelayThreads(0, DO_WITHOUT)


def choose_threads(config: Config, extension: NativeExtension, processors: int) -> RelayThreads:
    """Return the threads that move the bytes of relays.

    Raises ConfigError if the extension is not here, and the configuration is not one that does without.
    """
    if config.without_extension:
        return NO_THREADS
    if missing := missing_engine(extension):
        expected = f"this option, because {missing}; or install it: {INSTALL}"
        raise ConfigError([ConfigProblem(COMMAND_LINE, None, DO_WITHOUT, "nothing", expected)], [])
    asked = config.num_io_threads
    if asked is not None:
        used = "" if asked <= MOST_IO_THREADS else f", of which {MOST_IO_THREADS} are used"
        return RelayThreads(min(asked, MOST_IO_THREADS), f"numIOThreads={asked}{used}")
    return RelayThreads(min(processors, MOST_DEFAULT_IO_THREADS), f"{processors} processor{'s' * (processors > 1)}")


def missing_engine(extension: NativeExtension) -> str:
    """Return why the extension has no relay engine, nothing if it has one."""
    if extension.module is None or extension.has(ENGINE_CLASS):
        return extension.missing
    return f"pulsar-proxy-native {extension.version} has no relay engine"
