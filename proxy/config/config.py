"""The effective configuration: defaults, proxy.conf, environment and flags, in that order.

Rule: loading either gives a whole valid `Config` or one `ConfigError` with every fault in it, each with file,
line, key, got and expected. A `Config` never changes; a live change makes another one. This module imports no
other part of the proxy and nothing slow: it runs before anything else does.
"""

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cached_property
from types import MappingProxyType
from typing import Any, NoReturn, Self

from proxy.config.checks import cross_check
from proxy.config.keys.key import Key
from proxy.config.sources import (
    REVERSE_PROXY_PREFIX,
    ConfigError,
    ConfigProblem,
    ConfigWarning,
    Loader,
    Origin,
    ReverseProxyRoute,
    Setting,
)
from proxy.config.values import ConfigValues
from proxy.core.secrets import masked

__all__ = ["Config", "ConfigError", "ConfigProblem", "ConfigWarning", "Origin", "ReverseProxyRoute"]

_LIVE = "live change"


class Config(ConfigValues):
    """An immutable set of values, one attribute per key of `ConfigKeys`.

    `config.service_port` is a value, `Config.service_port` its `Key`. Made by `load` or `replace` only.
    """

    warnings: tuple[ConfigWarning, ...]
    _settings: Mapping[str, Setting]

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str] | None = None,
        environ: Mapping[str, str] = MappingProxyType({}),
        overrides: Mapping[str, str] = MappingProxyType({}),
    ) -> Self:
        """Read all sources; later ones win.

        `environ` follows the Pulsar image: a variable named like a key sets it, `PULSAR_PREFIX_<key>` does
        too and wins over the bare name, a value `${OTHER}` is that of the variable OTHER. Flags come as
        `overrides` by key name. Raises `ConfigError`.
        """
        return cls._build(cls._loaded(path, environ, overrides))

    @classmethod
    def load_despite_faults(
        cls, needed: Collection[Key[Any]], path: str | os.PathLike[str] | None, environ: Mapping[str, str]
    ) -> tuple[Self, tuple[ConfigProblem, ...]]:
        """Read what says where a running proxy is, whose file may have been broken since; gives the faults, too.

        A key that is wrong has its default, and nobody has to name a broker. Raises `ConfigError` if one of `needed`
        is wrong, or a line of which nobody knows whose it is.
        """
        loader = cls._loaded(path, environ, {cls.broker_service_url.name: "pulsar://unused.invalid"})
        config = cls._checked(loader)
        names = {key.name for key in needed} | {""}
        if any(problem.key in names for problem in loader.problems):
            raise ConfigError(loader.problems, loader.warnings)
        return config, tuple(loader.problems)

    def replace(self, changes: Mapping[str, str]) -> Self:
        """Give a copy with some dynamic keys changed.

        Raises `ConfigError`, also for a key that needs a restart.
        """
        loader = Loader(type(self))
        for setting in self._settings.values():
            loader.take(setting)
        dynamic = {key.name for key in self.keys() if key.dynamic}
        for name, text in changes.items():
            if name in loader.keys and name not in dynamic:
                shown = repr(loader.keys[name].shown_text(text))
                loader.problem(_LIVE, None, name, f"a change to {shown}", "a restart: this key is not dynamic")
            else:
                loader.take_known(Setting(name, text, "live", _LIVE))
        return self._build(loader)

    def differences(self, newer: Self) -> Iterator[Key[Any]]:
        """Yield the keys whose values differ."""
        return (key for key in self.keys() if self.value(key) != newer.value(key))

    def adopt(self, newer: Self) -> Self:
        """Give the dynamic keys of `newer` beside the other keys of this one: what a reload puts in force.

        Raises `ConfigError` if the two do not go together.
        """
        loader = Loader(type(self))
        for key in self.keys():
            setting = (newer if key.dynamic else self)._settings.get(key.name)
            if setting is not None:
                loader.take(setting)
        for name, setting in self._settings.items():
            if name.startswith(REVERSE_PROXY_PREFIX):
                loader.take(setting)
        return self._build(loader)

    @classmethod
    def _loaded(
        cls, path: str | os.PathLike[str] | None, environ: Mapping[str, str], overrides: Mapping[str, str]
    ) -> Loader:
        loader = Loader(cls)
        if path is not None:
            loader.read_file(os.fspath(path))
        loader.read_environment(environ)
        loader.read_flags(overrides)
        return loader

    @classmethod
    def _build(cls, loader: Loader) -> Self:
        config = cls._checked(loader)
        if loader.problems:
            raise ConfigError(loader.problems, loader.warnings)
        return config

    @classmethod
    def _checked(cls, loader: Loader) -> Self:
        """Put the values together; what is wrong with them is in `loader`."""
        values = loader.values()
        config = cls.__new__(cls)
        routes = loader.reverse_proxies()
        vars(config).update(values, _settings=MappingProxyType(loader.settings), _reverse_proxies=routes)
        cross_check(loader, config)
        vars(config)["warnings"] = tuple(loader.warnings)
        return config

    def origin(self, key: str | Key[Any]) -> Origin:
        """Tell where a key's value came from; raises KeyError for a name that is no key."""
        name = key.name if isinstance(key, Key) else key
        if setting := self._settings.get(name):
            return setting.origin
        if not isinstance(key, Key) and not any(known.name == name for known in self.keys()):
            raise KeyError(name)
        return "default"

    def place(self, key: Key[Any]) -> str:
        """Tell where a key's value stands: `file:line`, a variable of the environment, or what else set it."""
        setting = self._settings.get(key.name)
        if setting is None:
            return "default"
        return setting.file if setting.line is None else f"{setting.file}:{setting.line}"

    def fault(self, name: str, got: str, expected: str) -> ConfigProblem:
        """Describe a fault that only the use of a key's value has shown, with the place where it was set.

        What looks like a credential in `got` is hidden.
        """
        setting = self._settings.get(name)
        place = (setting.file, setting.line) if setting is not None else ("default", None)
        return ConfigProblem(*place, name, masked(got), expected)

    def items(self) -> Iterator[tuple[Key[Any], str, Origin]]:
        """Yield each key, its value as text (secrets hidden) and where it came from."""
        return iter(self._items)

    @cached_property
    def _items(self) -> Sequence[tuple[Key[Any], str, Origin]]:
        # To hide secrets in all of them takes 2 ms, and `top` asks at each refresh.
        return tuple((key, key.shown(self.value(key)), self.origin(key)) for key in self.keys())

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"{name}: a Config never changes; use replace()")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"{name}: a Config never changes; use replace()")
