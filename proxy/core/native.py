"""The native extension, if this installation has one that fits: the only place that imports it.

Rule: if the extension is absent, this file says why, for the operator whose proxy needs it. The module is loaded at the
first question, not at the import of this file. Its classes are here for annotations only (`pulsar_proxy_native.pyi`).
"""

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from proxy.core.version import VERSION

if TYPE_CHECKING:
    from pulsar_proxy_native import CommandTap as CommandTap
    from pulsar_proxy_native import RelayEngine as RelayEngine
    from pulsar_proxy_native import SlotBooks as SlotBooks
    from pulsar_proxy_native import TlsConfig as TlsConfig
    from pulsar_proxy_native import TlsSession as TlsSession

MODULE: Final = "pulsar_proxy_native"
DISTRIBUTION: Final = "pulsar-proxy-native"
INSTALL: Final = f"pip install {DISTRIBUTION}=={VERSION}"
# The option of commands that start a proxy, or look at what it would start with, where there is no extension.
DO_WITHOUT: Final = "--without-extension"
# The number of the interface between the extension and Python; both sides change it together.
ENGINE_ABI: Final = 11


@dataclass(frozen=True, slots=True)
class NativeExtension:
    """The module, its version and those of its TLS, or why there is none; one that does not fit keeps its version."""

    module: Any | None
    version: str = ""
    missing: str = ""
    tls_libraries: Mapping[str, str] = field(default_factory=dict)

    def has(self, name: str) -> bool:
        """Return whether the extension is here and offers a class of that name."""
        return hasattr(self.module, name)

    def find(self, name: str) -> Any | None:
        """Return a class of the extension, None if the extension is not here or has no such class."""
        return getattr(self.module, name, None)


def load(import_module: Callable[[str], Any] = importlib.import_module) -> NativeExtension:
    """Import the extension and check that it speaks this proxy's interface."""
    try:
        module = import_module(MODULE)
    except ModuleNotFoundError as error:
        if error.name != MODULE:
            return NativeExtension(None, missing=f"{DISTRIBUTION} cannot be loaded: {error}")
        return NativeExtension(None, missing=f"{DISTRIBUTION} is not installed")
    except ImportError as error:
        # Built for another processor or C library, or a file that is cut.
        return NativeExtension(None, missing=f"{DISTRIBUTION} cannot be loaded: {error}")
    version = str(getattr(module, "__version__", "of no version"))
    abi = getattr(module, "ENGINE_ABI", None)
    if abi != ENGINE_ABI:
        text = f"{DISTRIBUTION} {version} does not fit: got interface {abi}, expected {ENGINE_ABI}"
        return NativeExtension(None, version, text)
    return NativeExtension(module, version, tls_libraries=dict(getattr(module, "TLS_LIBRARIES", ())))


@cache
def native() -> NativeExtension:
    """Return the extension of this process, looked for once."""
    return load()


@cache
def native_class(name: str) -> Any | None:
    """Return a class of this process's extension, None if there is none; looked for once."""
    return native().find(name)
