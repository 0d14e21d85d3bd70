"""The native extension is used if it is here and fits, and otherwise there is a reason in words."""

from types import ModuleType
from typing import Any

import pytest

from proxy.core.native import ENGINE_ABI, MODULE, load, native


def module(**names: Any) -> ModuleType:
    made = ModuleType(MODULE)
    vars(made).update(names)
    return made


def failing(error: Exception) -> Any:
    def import_module(name: str) -> Any:
        raise error

    return import_module


def test_module_that_fits_is_used() -> None:
    fitting = module(__version__="1.2", ENGINE_ABI=ENGINE_ABI, RelayEngine=object)
    found = load(lambda name: fitting)
    assert (found.module, found.version, found.missing) == (fitting, "1.2", "")
    assert found.has("RelayEngine")
    assert not found.has("Another")


@pytest.mark.parametrize(
    ("names", "missing"),
    [
        ({"ENGINE_ABI": 8}, "pulsar-proxy-native 1.2 does not fit: got interface 8, expected 11"),
        ({}, "pulsar-proxy-native 1.2 does not fit: got interface None, expected 11"),
    ],
)
def test_module_of_another_interface_is_not_used(names: dict[str, Any], missing: str) -> None:
    found = load(lambda name: module(__version__="1.2", **names))
    assert (found.module, found.version, found.missing) == (None, "1.2", missing)
    assert not found.has("RelayEngine")


@pytest.mark.parametrize(
    ("error", "missing"),
    [
        (ModuleNotFoundError("none", name=MODULE), "pulsar-proxy-native is not installed"),
        (ModuleNotFoundError("no x", name="x"), "pulsar-proxy-native cannot be loaded: no x"),
        (ImportError("no GLIBC_2.99"), "pulsar-proxy-native cannot be loaded: no GLIBC_2.99"),
    ],
)
def test_reason_says_what_is_missing(error: Exception, missing: str) -> None:
    found = load(failing(error))
    assert (found.module, found.version, found.missing) == (None, "", missing)


def test_process_looks_once() -> None:
    assert native() is native()
