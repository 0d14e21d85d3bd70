"""The effective configuration: defaults, proxy.conf, environment and flags, in that order.

Rule: loading either gives a whole valid `Config` or one `ConfigError` with every fault in it, each with file,
line, key, got and expected. A `Config` never changes; a live change makes another one. This module imports no
other part of the proxy and nothing slow: it runs before anything else does.
"""

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal, NoReturn, Self

from proxy import java_keys
from proxy.conf_file import parse_conf
from proxy.config_key import BadValue, Key, split_broker_urls
from proxy.config_keys import ConfigKeys
from proxy.environment import PREFIX, settings_of
from proxy.secrets import shown_of_unknown

Origin = Literal["default", "file", "env", "flag", "live"]

_ENVIRONMENT = "environment"
_FLAGS = "command line"
_LIVE = "live change"
_LARGEST_FRAME_BYTES = 2**31 - 1
_MIB = 1024 * 1024
REVERSE_PROXY_PREFIX = "httpReverseProxy."
_ROUTE_PARTS = {"path": re.compile(r"/[^\s?#]*"), "proxyTo": re.compile(r"https?://[^\s?#]+")}
_ROUTE_EXPECTED = {"path": "a path that begins with /", "proxyTo": "http://host:port or https://host:port, and a path"}


@dataclass(frozen=True, slots=True)
class ConfigProblem:
    """One fault: where it stands, what is there and what should be."""

    file: str
    line: int | None
    key: str
    got: str
    expected: str

    def __str__(self) -> str:
        place = self.file if self.line is None else f"{self.file}:{self.line}"
        subject = f"{place}: {self.key}" if self.key else place
        return f"{subject}: got {self.got}, expected {self.expected}"


@dataclass(frozen=True, slots=True)
class ConfigWarning:
    """Something that does not stop the proxy but that its operator should know."""

    file: str
    line: int | None
    key: str
    text: str

    def __str__(self) -> str:
        place = self.file if self.line is None else f"{self.file}:{self.line}"
        return f"{place}: {self.key}: {self.text}"


class ConfigError(Exception):
    """All faults of a configuration together; `warnings` holds what else was seen."""

    def __init__(self, problems: list[ConfigProblem], warnings: list[ConfigWarning]) -> None:
        self.problems = tuple(sorted(problems, key=lambda problem: (problem.line is None, problem.line or 0)))
        self.warnings = tuple(warnings)
        super().__init__("\n".join(map(str, self.problems)))


@dataclass(frozen=True, slots=True)
class _Setting:
    """A value as somebody wrote it, before it is read."""

    key: str
    text: str
    origin: Origin
    file: str
    line: int | None = None


@dataclass(frozen=True, slots=True)
class ReverseProxy:
    """One more route of the web ports: requests below `path` go to `proxy_to`."""

    name: str
    path: str
    proxy_to: str


class Config(ConfigKeys):
    """An immutable set of values, one attribute per key of `ConfigKeys`.

    `config.service_port` is a value, `Config.service_port` its `Key`. Made by `load` or `replace` only.
    """

    warnings: tuple[ConfigWarning, ...]
    _settings: Mapping[str, _Setting]
    _reverse_proxies: tuple[ReverseProxy, ...]

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
        loader = _Loader(cls)
        if path is not None:
            loader.read_file(os.fspath(path))
        loader.read_environment(environ)
        loader.read_flags(overrides)
        return cls._build(loader)

    def replace(self, changes: Mapping[str, str]) -> Self:
        """Give a copy with some dynamic keys changed.

        Raises `ConfigError`, also for a key that needs a restart.
        """
        loader = _Loader(type(self))
        for setting in self._settings.values():
            loader.take(setting)
        dynamic = {key.name for key in self.keys() if key.dynamic}
        for name, text in changes.items():
            if name in loader.keys and name not in dynamic:
                loader.problem(_LIVE, None, name, f"a change to {text!r}", "a restart: this key is not dynamic")
            else:
                loader.take_known(_Setting(name, text, "live", _LIVE))
        return self._build(loader)

    def differences(self, newer: Self) -> Iterator[Key[Any]]:
        """Yield the keys whose values differ."""
        return (key for key in self.keys() if getattr(self, key.attribute) != getattr(newer, key.attribute))

    def adopt(self, newer: Self) -> Self:
        """Give the dynamic keys of `newer` beside the other keys of this one: what a reload puts in force.

        Raises `ConfigError` if the two do not go together.
        """
        loader = _Loader(type(self))
        for key in self.keys():
            setting = (newer if key.dynamic else self)._settings.get(key.name)
            if setting is not None:
                loader.take(setting)
        for name, setting in self._settings.items():
            if name.startswith(REVERSE_PROXY_PREFIX):
                loader.take(setting)
        return self._build(loader)

    @classmethod
    def _build(cls, loader: "_Loader") -> Self:
        values = loader.values()
        config = cls.__new__(cls)
        routes = loader.reverse_proxies()
        vars(config).update(values, _settings=MappingProxyType(loader.settings), _reverse_proxies=routes)
        loader.cross_check(config)
        if loader.problems:
            raise ConfigError(loader.problems, loader.warnings)
        vars(config)["warnings"] = tuple(loader.warnings)
        return config

    def origin(self, key: str | Key[Any]) -> Origin:
        """Tell where a key's value came from; raises KeyError for a name that is no key."""
        name = key.name if isinstance(key, Key) else key
        if setting := self._settings.get(name):
            return setting.origin
        if not any(known.name == name for known in self.keys()):
            raise KeyError(name)
        return "default"

    def place(self, key: Key[Any]) -> str:
        """Tell where a key's value stands: `file:line`, a variable of the environment, or what else set it."""
        setting = self._settings.get(key.name)
        if setting is None:
            return "default"
        return setting.file if setting.line is None else f"{setting.file}:{setting.line}"

    def fault(self, name: str, got: str, expected: str) -> ConfigProblem:
        """Describe a fault that only the use of a key's value has shown, with the place where it was set."""
        setting = self._settings.get(name)
        place = (setting.file, setting.line) if setting is not None else ("default", None)
        return ConfigProblem(*place, name, got, expected)

    def items(self) -> Iterator[tuple[Key[Any], str, Origin]]:
        """Yield each key, its value as text (secrets hidden) and where it came from."""
        for key in self.keys():
            yield key, key.shown(getattr(self, key.attribute)), self.origin(key)

    @property
    def broker_hosts(self) -> tuple[tuple[str, int], ...]:
        """Hosts and ports of the brokers, out of `brokerServiceURL`, or of its twin for TLS."""
        tls = self.tls_enabled_with_broker
        return split_broker_urls(self.broker_service_url_tls if tls else self.broker_service_url, tls=tls)

    @property
    def http_reverse_proxies(self) -> tuple[ReverseProxy, ...]:
        """The routes of `httpReverseProxy.<name>.path` and `.proxyTo`, in the order of their names."""
        return self._reverse_proxies

    @property
    def heap_limit_bytes(self) -> int:
        """Limit for decoded topic lists, bytes; 0 is no limit."""
        return self.max_topic_list_in_flight_heap_mem_size_mb * _MIB

    @property
    def direct_limit_bytes(self) -> int:
        """Limit for encoded topic lists, bytes; 0 is no limit."""
        return self.max_topic_list_in_flight_direct_mem_size_mb * _MIB

    @property
    def topic_list_answer_limit_bytes(self) -> int:
        """Largest answer of a broker that is read, bytes: the key, else the smaller memory limit."""
        if self.topic_list_max_answer_bytes is not None:
            return self.topic_list_max_answer_bytes
        limits = [limit for limit in (self.heap_limit_bytes, self.direct_limit_bytes) if limit]
        return min([*limits, _LARGEST_FRAME_BYTES])

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"{name}: a Config never changes; use replace()")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"{name}: a Config never changes; use replace()")


class _Loader:
    """Collects settings, faults and warnings of one load."""

    def __init__(self, config_class: type[Config]) -> None:
        self.keys: dict[str, Key[Any]] = {key.name: key for key in config_class.keys()}  # noqa: SIM118
        self.settings: dict[str, _Setting] = {}
        self.problems: list[ConfigProblem] = []
        self.refused: set[str] = set()
        self.unknown: dict[str, _Setting] = {}
        self.warnings: list[ConfigWarning] = []
        self.home = "defaults"  # where a missing key should be added

    def problem(self, file: str, line: int | None, key: str, got: str, expected: str) -> None:
        self.problems.append(ConfigProblem(file, line, key, got, expected))

    def warn(self, setting: _Setting, text: str) -> None:
        name = setting.key if setting.key.isprintable() else repr(setting.key)
        self.warnings.append(ConfigWarning(setting.file, setting.line, name, text))

    def take(self, setting: _Setting) -> None:
        self.settings[setting.key] = setting

    def take_known(self, setting: _Setting) -> None:
        """Take a setting that must name a key of this proxy."""
        if setting.key in self.keys:
            self.take(setting)
        else:
            nearest = self._nearest(setting.key) or "a key of this proxy"
            self.problem(setting.file, None, setting.key, "an unknown key", nearest)

    def read_file(self, path: str) -> None:
        self.home = path
        try:
            with open(path, "rb") as file:
                data = file.read()
        except OSError as error:
            self.problem(path, None, "", (error.strerror or str(error)).lower(), "a readable file")
            return
        parsed = parse_conf(data)
        for fault in parsed.faults:
            self.problem(path, fault.line, "", repr(fault.got), fault.expected)
        lines: dict[str, int] = {}
        for entry in parsed.entries:
            setting = _Setting(entry.key, entry.value, "file", path, entry.line)
            if entry.key in lines:
                self.warn(setting, f"already set in line {lines[entry.key]}; this line wins")
            lines[entry.key] = entry.line
            self._take_or_explain(setting)

    def read_environment(self, environ: Mapping[str, str]) -> None:
        def stands_in_file(name: str) -> bool:
            # The file that comes with this proxy has each of its keys, and a file of the Java proxy's may be here.
            return name in self.keys or name.startswith(REVERSE_PROXY_PREFIX) or java_keys.is_java_only(name)

        for variable in settings_of(environ, stands_in_file):
            prefixed = "" if variable.name == variable.key else f" ({PREFIX})"
            setting = _Setting(variable.key, variable.value, "env", _ENVIRONMENT + prefixed)
            if variable.fault:
                got = repr(shown_of_unknown(variable.key, variable.value))
                self.problem(setting.file, None, variable.key, got, variable.fault)
            else:
                self._take_or_explain(setting)

    def read_flags(self, overrides: Mapping[str, str]) -> None:
        for name, text in overrides.items():
            self.take_known(_Setting(name, text, "flag", _FLAGS))

    def _take_or_explain(self, setting: _Setting) -> None:
        """Take a known key; say what becomes of any other."""
        if setting.key in self.keys or setting.key.startswith(REVERSE_PROXY_PREFIX):
            self.take(setting)
        elif not java_keys.is_java_only(setting.key):
            nearest = self._nearest(setting.key)
            self.warn(setting, f"unknown key, ignored{f'; did you mean {nearest}?' if nearest else ''}")
        elif java_keys.is_java_default(setting.key, setting.text):
            self.unknown.pop(setting.key, None)
        elif setting.key in java_keys.METADATA_STORES:
            # What becomes of it depends on other keys.
            self.unknown[setting.key] = setting
        elif reason := java_keys.UNSAFE_TO_IGNORE.get(setting.key):
            got, expected = shown_of_unknown(setting.key, setting.text), repr(java_keys.JAVA_ONLY_KEYS[setting.key])
            self.problem(setting.file, setting.line, setting.key, repr(got), f"{expected}: {reason}")
        else:
            why = java_keys.why_not(setting.key)
            self.warn(setting, f"the Java proxy knows this key, this proxy does not: ignored; {why}")

    def _nearest(self, name: str) -> str | None:
        import difflib  # 8 ms that only a misspelt key should cost

        lowered = {key.lower(): key for key in (*self.keys, *java_keys.JAVA_ONLY_KEYS)}
        found = difflib.get_close_matches(name.lower(), lowered, n=1, cutoff=0.75)
        return lowered[found[0]] if found else None

    def values(self) -> dict[str, object]:
        """Read every setting; a refused one keeps its default and is a fault."""
        values: dict[str, object] = {}
        for key in self.keys.values():
            values[key.attribute] = key.default
            setting = self.settings.get(key.name)
            if setting is None:
                continue
            try:
                values[key.attribute] = key.parse(setting.text)
            except BadValue as error:
                got = key.shown_text(setting.text) if key.secret else repr(key.shown_text(setting.text))
                self.problem(setting.file, setting.line, key.name, got, str(error))
        return values

    def reverse_proxies(self) -> tuple[ReverseProxy, ...]:
        """Put the parts of each `httpReverseProxy.<name>` together; half a route is a fault."""
        routes: dict[str, dict[str, str]] = {}
        for name, setting in self.settings.items():
            if not name.startswith(REVERSE_PROXY_PREFIX):
                continue
            route, _, part = name.removeprefix(REVERSE_PROXY_PREFIX).rpartition(".")
            kind = _ROUTE_PARTS.get(part)
            if kind is None or not route:
                expected = f"{REVERSE_PROXY_PREFIX}<name>.path or .proxyTo"
                self.problem(setting.file, setting.line, name, "an unknown key", expected)
                continue
            if not kind.fullmatch(setting.text.strip()):
                self.problem(setting.file, setting.line, name, repr(setting.text), _ROUTE_EXPECTED[part])
            routes.setdefault(route, {})[part] = setting.text.strip()
        for route, parts in routes.items():
            for missing in _ROUTE_PARTS.keys() - parts.keys():
                self.problem(
                    self.home, None, f"{REVERSE_PROXY_PREFIX}{route}.{missing}", "nothing", _ROUTE_EXPECTED[missing]
                )
        return tuple(
            ReverseProxy(route, parts.get("path", ""), parts.get("proxyTo", ""))
            for route, parts in sorted(routes.items())
        )

    def cross_check(self, config: Config) -> None:
        """Check what no key can know alone; what was refused already is not complained about a second time."""
        self.refused = {problem.key for problem in self.problems}
        key = Config.broker_service_url_tls if config.tls_enabled_with_broker else Config.broker_service_url
        _check_discovery(self, key.name, given=bool(getattr(config, key.attribute)))
        if not getattr(config, key.attribute):
            self.fault(key, "nothing", f"{key.kind.expected}: this key is required")
        _check_ports(self, config)
        _check_memory(self, config)
        if config.broker_connections_per_key > config.broker_connections_total:
            self.fault(
                Config.broker_connections_per_key, str(config.broker_connections_per_key),
                f"at most brokerConnectionsTotal ({config.broker_connections_total})",
            )  # fmt: skip
        _check_times(self, config)
        _check_broker_client(self, config)

    def fault(self, key: Key[Any], got: str, expected: str) -> None:
        setting = self.where(key)
        if key.name not in self.refused:
            self.problem(setting.file, setting.line, key.name, got, expected)

    def doubt(self, key: Key[Any], text: str) -> None:
        self.warn(self.where(key), text)

    def where(self, key: Key[Any]) -> _Setting:
        return self.settings.get(key.name) or _Setting(key.name, key.default_text, "default", self.home)


def _check_discovery(loader: _Loader, urls: str, *, given: bool) -> None:
    """Refuse a file in which brokers are only to be found in a metadata store; beside a list of them it is unused."""
    for name in java_keys.METADATA_STORES:
        found = loader.unknown.get(name)
        if found is None or not found.text.strip():
            continue
        if given:
            loader.warn(found, f"not used: this proxy finds brokers by {urls}")
        else:
            expected = f"{urls} with the brokers or a name that leads to them: this proxy asks no metadata store"
            loader.problem(found.file, found.line, name, repr(found.text), expected)


def _check_ports(loader: _Loader, config: Config) -> None:
    taken: dict[int, str] = {}
    for key in (Config.service_port, Config.service_port_tls, Config.web_service_port, Config.web_service_port_tls):
        port = getattr(config, key.attribute)
        if port and port in taken:
            loader.fault(key, str(port), f"a port other than {taken[port]}")
        elif port:
            taken[port] = key.name


def _check_broker_client(loader: _Loader, config: Config) -> None:
    plugin = Config.broker_client_authentication_plugin
    if config.broker_client_authentication_plugin:
        _check_credentials(loader, config)
    elif config.authentication_enabled:
        loader.doubt(plugin, "nothing: brokers take an original principal only from a role in their proxyRoles")
    if config.forward_authorization_credentials and not config.authentication_enabled:
        loader.doubt(Config.forward_authorization_credentials, "has no effect without authenticationEnabled")


def _check_credentials(loader: _Loader, config: Config) -> None:
    # They bring asyncio with them: only for those who have such credentials.
    from proxy.auth.broker_credentials import BadParameters
    from proxy.auth.own_credentials import check_credentials, shown_certificate

    plugin_name, given = config.broker_client_authentication_plugin, config.broker_client_authentication_parameters
    plugin, parameters = Config.broker_client_authentication_plugin, Config.broker_client_authentication_parameters
    try:
        check_credentials(plugin_name, given)
    except BadParameters as error:
        if error.key == plugin.name:
            loader.fault(plugin, repr(plugin_name), error.expected)
        else:
            loader.fault(parameters, "something else (hidden)", error.expected)
        return
    shown = shown_certificate(plugin_name, given)
    if shown is not None and not config.tls_enabled_with_broker:
        loader.doubt(plugin, "brokers see a certificate only with tlsEnabledWithBroker=true")


def _check_memory(loader: _Loader, config: Config) -> None:
    limits = (
        (Config.max_topic_list_in_flight_heap_mem_size_mb, config.heap_limit_bytes),
        (Config.max_topic_list_in_flight_direct_mem_size_mb, config.direct_limit_bytes),
    )
    largest = config.topic_list_answer_limit_bytes
    first = config.topic_list_initial_heap_permit_bytes
    for key, limit in limits:
        if not limit:
            loader.doubt(key, "0 means no limit: the memory of topic lists is not bounded")
        elif largest > limit:
            expected = f"at most {key.name} ({limit} bytes)"
            loader.fault(Config.topic_list_max_answer_bytes, str(largest), expected)
    heap_key, heap_limit = limits[0]
    if heap_limit and first > heap_limit:
        expected = f"at most {heap_key.name} ({heap_limit} bytes)"
        loader.fault(Config.topic_list_initial_heap_permit_bytes, str(first), expected)


def _check_times(loader: _Loader, config: Config) -> None:
    whole_time = config.topic_list_request_timeout_millis
    for key, wait in (
        (
            Config.max_topic_list_in_flight_heap_mem_size_permits_acquire_timeout_millis,
            config.max_topic_list_in_flight_heap_mem_size_permits_acquire_timeout_millis,
        ),
        (
            Config.max_topic_list_in_flight_direct_mem_size_permits_acquire_timeout_millis,
            config.max_topic_list_in_flight_direct_mem_size_permits_acquire_timeout_millis,
        ),
    ):
        if wait > whole_time:
            loader.doubt(key, f"{wait} is never reached: topicListRequestTimeoutMillis is {whole_time}")
    silence = config.broker_proxy_read_timeout_ms
    if silence and config.keep_alive_interval_seconds * 1000 >= silence:
        text = f"{silence} is not above keepAliveIntervalSeconds: idle connections end before their PING"
        loader.doubt(Config.broker_proxy_read_timeout_ms, text)
