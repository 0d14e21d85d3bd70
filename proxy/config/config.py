"""The effective configuration: defaults, proxy.conf, environment and flags, in that order.

Rule: loading returns a valid `Config` or raises a `ConfigError` with all faults, each with file, line, key, got and
expected. A `Config` is immutable; a live change makes a new `Config`. This module imports no room but `core`, and
no slow library, because it runs before everything else.
"""

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cached_property
from types import MappingProxyType
from typing import Any, NoReturn, Self

from proxy.config.keys.key import Key
from proxy.config.rules import judge
from proxy.config.sources import (
    ConfigError,
    ConfigProblem,
    ConfigWarning,
    Loader,
    Origin,
    ReverseProxyRoute,
    Setting,
)
from proxy.config.values import ConfigValues
from proxy.config.without_extension import leave_out
from proxy.core.secrets import masked

__all__ = ["Config", "ConfigError", "ConfigProblem", "ConfigWarning", "Origin", "ReverseProxyRoute"]

_LIVE = "live change"


class Config(ConfigValues):
    """An immutable set of values, with an attribute for each key of `ConfigKeys`.

    `config.service_port` is a value, `Config.service_port` its `Key`. Use `load` or `replace` to make a `Config`.
    """

    warnings: tuple[ConfigWarning, ...]
    without_extension: bool

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str] | None = None,
        environ: Mapping[str, str] = MappingProxyType({}),
        overrides: Mapping[str, str] = MappingProxyType({}),
        *,
        without_extension: bool = False,
    ) -> Self:
        """Load all sources; a later source overrides an earlier one. Raise `ConfigError`.

        `environ` follows the Pulsar image (`proxy.config.sources`). `overrides` are the flags by key name.
        `without_extension`: nothing of what only the native extension does.
        """
        return cls._build(cls._loaded(path, environ, overrides, without_extension=without_extension))

    @classmethod
    def load_what_is_right(
        cls,
        path: str | os.PathLike[str] | None,
        environ: Mapping[str, str],
        overrides: Mapping[str, str],
        *,
        without_extension: bool = False,
    ) -> Self:
        """Return a configuration whose faults `load` has told, to look for others: each wrong key has its default.

        No proxy can run with it: a key that is missing is missing here, too.
        """
        loader = cls._loaded(path, environ, overrides, without_extension=without_extension)
        while True:
            config = cls._checked(loader)
            wrong = ({problem.key for problem in loader.problems} | loader.in_need) & loader.settings.keys()
            if not wrong:
                return config
            # Keys that only contradict each other are still in the settings: without one the other may be right.
            for name in wrong:
                del loader.settings[name]
            loader.problems.clear()
            loader.in_need.clear()

    @classmethod
    def load_despite_faults(
        cls, needed: Collection[Key[Any]], path: str | os.PathLike[str] | None, environ: Mapping[str, str]
    ) -> tuple[Self, tuple[ConfigProblem, ...]]:
        """Return the configuration of a running proxy, whose file may be broken by now, and the faults.

        A wrong key has its default, and no broker is required. Raise `ConfigError` if a key of `needed` is wrong, or if
        a line is so broken that it may belong to any key.
        """
        loader = cls._loaded(path, environ, {cls.broker_service_url.name: "pulsar://unused.invalid"})
        config = cls._checked(loader)
        names = {key.name for key in needed} | {""}
        if any(problem.key in names for problem in loader.problems):
            raise ConfigError(loader.problems, loader.warnings)
        return config, tuple(loader.problems)

    def replace(self, changes: Mapping[str, str]) -> Self:
        """Return a copy with some dynamic keys changed; raise `ConfigError`, also for a key that needs a restart."""
        loader = self._loader()
        dynamic = {key.name for key in self.keys() if key.dynamic}
        for name, text in changes.items():
            if name in loader.keys and name not in dynamic:
                shown = repr(loader.keys[name].shown_text(text))
                loader.problem(_LIVE, None, name, f"a change to {shown}", "a restart: this key is not dynamic")
            else:
                loader.take_known(Setting(name, text, "live", _LIVE))
        return self._build(loader)

    def live_fault(self, key: Key[Any], text: str, expected: str) -> ConfigProblem:
        """Return a fault of a live change that may not be made; its place is the command, not the key's setting."""
        return ConfigProblem(_LIVE, None, key.name, masked(f"a change to {key.shown_text(text)!r}"), expected)

    def with_source_of(self, key: Key[Any], earlier: Self) -> Self:
        """Return a copy in which a dynamic key has the value and the source that `earlier` has; raise `ConfigError`."""
        return self._build(self._loader(earlier, {key.name}))

    def differences(self, newer: Self) -> Iterator[Key[Any]]:
        """Yield the keys whose values are not the same in `newer`."""
        return (key for key in self.keys() if self.value(key) != newer.value(key))

    def adopt(self, newer: Self) -> Self:
        """Return what a reload puts in force: the dynamic keys of `newer` with the other keys of this configuration.

        Raise `ConfigError` if the combination is not valid.
        """
        return self._build(self._loader(newer, {key.name for key in self.keys() if key.dynamic}))

    def _loader(self, other: Self | None = None, names: Collection[str] = ()) -> Loader:
        """Return a loader with the settings of this configuration, but for keys of these names those of another."""
        loader = Loader(type(self), without_extension=self.without_extension)
        loader.settings = {name: setting for name, setting in self._settings.items() if name not in names}
        if other is not None:
            loader.settings |= {name: setting for name, setting in other._settings.items() if name in names}
        return loader

    @classmethod
    def _loaded(
        cls,
        path: str | os.PathLike[str] | None,
        environ: Mapping[str, str],
        overrides: Mapping[str, str],
        *,
        without_extension: bool = False,
    ) -> Loader:
        loader = Loader(cls, without_extension=without_extension)
        if path is not None:
            loader.read_file(os.fspath(path))
        loader.read_environment(environ)
        loader.read_flags(overrides)
        if without_extension:
            leave_out(loader)
        return loader

    @classmethod
    def _build(cls, loader: Loader) -> Self:
        config = cls._checked(loader)
        if loader.problems:
            raise ConfigError(loader.problems, loader.warnings)
        return config

    @classmethod
    def _checked(cls, loader: Loader) -> Self:
        """Build the configuration; its faults are in `loader`."""
        values = loader.values()
        config = cls.__new__(cls)
        routes = loader.reverse_proxies()
        vars(config).update(values, _settings=MappingProxyType(loader.settings), _reverse_proxies=routes)
        vars(config)["without_extension"] = loader.without_extension
        judge(loader, config)
        vars(config)["warnings"] = tuple(loader.warnings)
        return config

    def origin(self, key: str | Key[Any]) -> Origin:
        """Return the source of a key's value; raise KeyError for an unknown name."""
        name = key.name if isinstance(key, Key) else key
        if setting := self._settings.get(name):
            return setting.origin
        if not isinstance(key, Key) and not any(known.name == name for known in self.keys()):
            raise KeyError(name)
        return "default"

    def place(self, key: Key[Any]) -> str:
        """Return the place of a key's value: `file:line`, an environment variable, or another source."""
        setting = self._settings.get(key.name)
        if setting is None:
            return "default"
        return setting.file if setting.line is None else f"{setting.file}:{setting.line}"

    def fault(self, name: str, got: str, expected: str) -> ConfigProblem:
        """Return a fault that was found by using a key's value, with the place of the setting.

        Parts of `got` that look like credentials are hidden.
        """
        setting = self._settings.get(name)
        place = (setting.file, setting.line) if setting is not None else ("default", None)
        return ConfigProblem(*place, name, masked(got), expected)

    def items(self) -> Iterator[tuple[Key[Any], str, Origin]]:
        """Yield each key, its value as text (secrets hidden) and its source."""
        return iter(self._items)

    @cached_property
    def _items(self) -> Sequence[tuple[Key[Any], str, Origin]]:
        # Cached: hiding secrets in all values takes 2 ms, and `top` asks at each refresh.
        return tuple((key, key.shown(self.value(key)), self.origin(key)) for key in self.keys())

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"{name}: a Config never changes; use replace()")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"{name}: a Config never changes; use replace()")
