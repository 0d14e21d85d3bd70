"""The sources of a configuration (proxy.conf, environment and flags) and their faults.

Rule: no setting is lost silently. Each fault has file, line, key, got and expected; an unused setting is a warning.
Checks across keys are in `proxy.config.rules`.

Variables of the environment mean the same as in Pulsar's image (its apply-config-from-env.py), but no file is written,
since the file system may be read-only. A variable named like a key of proxy.conf, also like a commented key, sets this
key. `PULSAR_PREFIX_<key>` sets or adds a key and takes precedence over the bare name. The value `${OTHER}` is the value
of the variable OTHER, or empty without such a variable. Blanks around the value of a bare variable are stripped first.
The value is then parsed like a line of a properties file, which the image makes of it: a backslash is an escape.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal
from urllib.parse import urlsplit

from proxy.config import java_keys
from proxy.config.keys.key import BadValue, Key
from proxy.config.keys_table import ConfigKeys
from proxy.config.properties import parse_conf, unescape
from proxy.config.retired import RETIRED
from proxy.core.files import read_regular
from proxy.core.secrets import masked, shown_of_unknown

Origin = Literal["default", "file", "env", "flag", "live"]

ENVIRONMENT_PREFIX = "PULSAR_PREFIX_"
REVERSE_PROXY_PREFIX = "httpReverseProxy."
_ENVIRONMENT = "environment"
COMMAND_LINE = "command line"
_VARIABLE = re.compile(r"\$\{([^{}]*)\}")
_EXPANDED = "${NAME} with the name of an environment variable that is set and not empty"
_ROUTE_PARTS = {"path": re.compile(r"/[^\s?#]*"), "proxyTo": re.compile(r"https?://[^\s?#]+")}
_ROUTE_EXPECTED = {"path": "a path that begins with /", "proxyTo": "http://host:port or https://host:port, and a path"}
# Paths that the web ports serve themselves or pass to brokers; a route at or above one of them is served in its place.
# With a final slash it is the beginning of many paths.
_OWN_PATHS = (
    "/ui/", "/metrics", "/healthz", "/readyz", "/status.html", "/config", "/proxy-stats/", "/admin/", "/lookup/",
    "/ws/",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class ConfigProblem:
    """A fault: its place, the found value and the expected one."""

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
    """A problem that does not stop the proxy but that its operator should know."""

    file: str
    line: int | None
    key: str
    text: str
    # No proxy knows the key: probably a misspelt one.
    unknown: bool = False

    def __str__(self) -> str:
        place = self.file if self.line is None else f"{self.file}:{self.line}"
        return f"{place}: {self.key}: {self.text}"


class ConfigError(Exception):
    """All faults of a configuration together, and the warnings."""

    def __init__(self, problems: list[ConfigProblem], warnings: list[ConfigWarning]) -> None:
        self.problems = tuple(sorted(problems, key=lambda problem: (problem.line is None, problem.line or 0)))
        self.warnings = tuple(warnings)
        super().__init__("\n".join(map(str, self.problems)))


class _NotExpanded(Exception):
    """A secret names an environment variable that is not set."""


@dataclass(frozen=True, slots=True)
class Setting:
    """An unparsed value and its source."""

    key: str
    text: str
    origin: Origin
    file: str
    line: int | None = None
    # The variables of a secret have been replaced by their values.
    expanded: bool = False


@dataclass(frozen=True, slots=True)
class ReverseProxyRoute:
    """An additional route of the web ports: requests below `path` go to `proxy_to`."""

    name: str
    path: str
    proxy_to: str


class Loader:
    """Collects settings, faults and warnings while a configuration is loaded."""

    def __init__(self, config_class: type[ConfigKeys], *, without_extension: bool = False) -> None:
        self.without_extension = without_extension
        self.keys: dict[str, Key[Any]] = {key.name: key for key in config_class.keys()}  # noqa: SIM118
        self.settings: dict[str, Setting] = {}
        self.problems: list[ConfigProblem] = []
        self.refused: set[str] = set()
        # Keys of no use without another one, which is missing or wrong.
        self.in_need: set[str] = set()
        self.unknown: dict[str, Setting] = {}
        self.warnings: list[ConfigWarning] = []
        self.home = "default"  # the place to add a missing key
        # No key is missed in a file that could not be read: the file itself is the fault.
        self.unread = False
        # Where the variables in secrets are found.
        self.environ: Mapping[str, str] = {}

    # --- faults and warnings ----------------------------------------------------------------------

    def problem(self, file: str, line: int | None, key: str, got: str, expected: str) -> None:
        """Record a fault; all faults are reported together. Parts of `got` that look like credentials are hidden."""
        self.problems.append(ConfigProblem(file, line, key, masked(got), expected))

    def refuse(self, setting: Setting, got: str, expected: str) -> None:
        """Record a fault of a setting."""
        self.problem(setting.file, setting.line, setting.key, got, expected)

    def warn(self, setting: Setting, text: str, *, unknown: bool = False) -> None:
        """Record a warning about a setting."""
        name = setting.key if setting.key.isprintable() else repr(setting.key)
        self.warnings.append(ConfigWarning(setting.file, setting.line, name, text, unknown))

    # --- sources ------------------------------------------------------------------------------------

    def take(self, setting: Setting) -> None:
        """Store a setting, replacing an earlier one."""
        self.settings[setting.key] = setting

    def take_known(self, setting: Setting) -> None:
        """Store a setting of a known key; record a fault for an unknown key."""
        if setting.key in self.keys:
            self.take(setting)
        elif setting.key in RETIRED:
            self._take_retired(setting)
        else:
            self.refuse(setting, "an unknown key", self._nearest(setting.key) or "a key of this proxy")

    def read_file(self, path: str) -> None:
        """Read a file with the syntax of Java properties."""
        self.home = path
        try:
            data = read_regular(path)
        except OSError as error:
            self.unread = True
            found = "a directory" if isinstance(error, IsADirectoryError) else (error.strerror or str(error)).lower()
            self.problem(path, None, "", found, "a readable file")
            return
        parsed = parse_conf(data)
        for fault in parsed.faults:
            self.problem(path, fault.line, "", repr(fault.got), fault.expected)
        lines: dict[str, int] = {}
        for entry in parsed.entries:
            setting = Setting(entry.key, entry.value, "file", path, entry.line)
            if entry.key in lines:
                self.warn(setting, f"already set in line {lines[entry.key]}; this line wins")
            lines[entry.key] = entry.line
            self._take_or_explain(setting)

    def read_environment(self, environ: Mapping[str, str]) -> None:
        """Read the environment with the rules of Pulsar's image."""

        self.environ = environ

        def stands_in_file(name: str) -> bool:
            # The supplied proxy.conf has all keys of this proxy, and the file may be one of the Java proxy.
            known = name in self.keys or name in RETIRED or java_keys.is_java_only(name)
            return known or name.startswith(REVERSE_PROXY_PREFIX)

        for setting in settings_of(environ, stands_in_file):
            try:
                read = replace(setting, text=unescape(setting.text))
            except ValueError:
                got = repr(shown_of_unknown(setting.key, setting.text))
                self.refuse(setting, got, "\\u and four hexadecimal digits")
            else:
                self._take_or_explain(read)

    def read_flags(self, overrides: Mapping[str, str]) -> None:
        """Read flags; an unknown key is a fault."""
        for name, text in overrides.items():
            self.take_known(Setting(name, text, "flag", COMMAND_LINE))

    def _take_or_explain(self, setting: Setting) -> None:
        """Store a known key; record a fault or a warning for any other."""
        if setting.key in self.keys or setting.key.startswith(REVERSE_PROXY_PREFIX):
            self.take(setting)
        elif setting.key in RETIRED:
            self._take_retired(setting)
        elif not java_keys.is_java_only(setting.key):
            nearest = self._nearest(setting.key)
            self.warn(setting, f"unknown key, ignored{f'; did you mean {nearest}?' if nearest else ''}", unknown=True)
        elif java_keys.is_java_default(setting.key, setting.text):
            self.unknown.pop(setting.key, None)
        elif setting.key in java_keys.METADATA_STORES:
            # The checks across keys decide about a metadata store.
            self.unknown[setting.key] = setting
        elif java_keys.is_unsafe_to_ignore(setting.key, setting.text):
            got, expected = shown_of_unknown(setting.key, setting.text), repr(java_keys.JAVA_ONLY_KEYS[setting.key])
            self.refuse(setting, repr(got), f"{expected}: {java_keys.why_not(setting.key)}")
        else:
            why = java_keys.why_not(setting.key)
            self.warn(setting, f"the Java proxy knows this key, this proxy does not: ignored; {why}")

    def _take_retired(self, setting: Setting) -> None:
        """Record a warning for a key that is no more and asks for what happens anyway, else a fault."""
        retired = RETIRED[setting.key]
        # A live change has no file that it may be left in.
        if retired.keeps(setting.text) and setting.origin != "live":
            self.warn(setting, "has no effect any more: remove it, the next version does not know it")
        else:
            self.refuse(setting, repr(setting.text), f"no such key: {retired.instead}")

    def _nearest(self, name: str) -> str | None:
        import difflib  # imported only for a misspelt key: the import takes 8 ms

        lowered = {key.lower(): key for key in (*self.keys, *java_keys.JAVA_ONLY_KEYS)}
        found = difflib.get_close_matches(name.lower(), lowered, n=1, cutoff=0.75)
        return lowered[found[0]] if found else None

    # --- values -------------------------------------------------------------------------------------

    def values(self) -> dict[str, object]:
        """Parse all settings; a refused setting is a fault, and its key keeps the default."""
        values: dict[str, object] = {}
        for key in self.keys.values():
            values[key.attribute] = key.default
            setting = self.settings.get(key.name)
            if setting is None:
                continue
            try:
                if key.secret and not setting.expanded:
                    setting = self.settings[key.name] = self._expanded(setting)
                values[key.attribute] = key.parse(setting.text)
            except _NotExpanded as error:
                self.refuse(setting, str(error), _EXPANDED)
            except BadValue as error:
                got = key.shown_text(setting.text) if key.secret else repr(key.shown_text(setting.text))
                # The text of the error may quote the value, which must not happen to a secret.
                expected = key.kind.expected if key.secret else str(error)
                self.refuse(setting, got, expected)
        return values

    def _expanded(self, setting: Setting) -> Setting:
        """Return a secret with each `${NAME}` replaced by the variable's value; raises _NotExpanded.

        A secret that still has such a part would be sent to brokers as it stands, and nobody could see why they refuse.
        """

        def value_of(found: re.Match[str]) -> str:
            value = self.environ.get(found[1], "")
            if not value:
                raise _NotExpanded(found[0])
            return value

        if "${" in _VARIABLE.sub("", setting.text):
            raise _NotExpanded("${ without }")
        return replace(setting, text=_VARIABLE.sub(value_of, setting.text), expanded=True)

    def reverse_proxies(self) -> tuple[ReverseProxyRoute, ...]:
        """Return the routes in `httpReverseProxy.<name>`; an incomplete route is a fault."""
        routes: dict[str, dict[str, str]] = {}
        for name, setting in self.settings.items():
            if not name.startswith(REVERSE_PROXY_PREFIX):
                continue
            route, _, part = name.removeprefix(REVERSE_PROXY_PREFIX).rpartition(".")
            kind = _ROUTE_PARTS.get(part)
            if kind is None or not route:
                self.refuse(setting, "an unknown key", f"{REVERSE_PROXY_PREFIX}<name>.path or .proxyTo")
                continue
            if not kind.fullmatch(setting.text.strip()) or (part == "proxyTo" and not _can_be_asked(setting.text)):
                self.refuse(setting, repr(setting.text), _ROUTE_EXPECTED[part])
            elif part == "path" and (hidden := _pages_below(setting.text.strip())):
                self.warn(setting, f"takes the place of {', '.join(hidden)} of this proxy")
            routes.setdefault(route, {})[part] = setting.text.strip()
        for route, parts in routes.items():
            for missing in _ROUTE_PARTS.keys() - parts.keys():
                self.problem(
                    self.home, None, f"{REVERSE_PROXY_PREFIX}{route}.{missing}", "nothing", _ROUTE_EXPECTED[missing]
                )
        return tuple(
            ReverseProxyRoute(route, parts.get("path", ""), parts.get("proxyTo", ""))
            for route, parts in sorted(routes.items())
        )

    def fault(self, key: Key[Any], got: str, expected: str, *, needed_by: Key[Any] | None = None) -> None:
        """Record a fault of a key at the place of its value, unless the key was refused already.

        `needed_by`: the key whose value makes the fault one, and which is of no use without the other.
        """
        if needed_by is not None:
            self.in_need.add(needed_by.name)
        if key.name not in self.refused:
            self.refuse(self.where(key), got, expected)

    def doubt(self, key: Key[Any], text: str) -> None:
        """Record a warning at the place of a key's value."""
        self.warn(self.where(key), text)

    def where(self, key: Key[Any]) -> Setting:
        """Return the setting of a key, or its default."""
        return self.settings.get(key.name) or Setting(key.name, key.default_text, "default", self.home)


def settings_of(environ: Mapping[str, str], stands_in_file: Callable[[str], bool]) -> Iterator[Setting]:
    """Yield the settings in the environment, still with escapes; a setting that overrides another comes later.

    `stands_in_file` returns whether proxy.conf has a key of this name, set or commented.
    """
    bare = [(name, environ[name].strip(), "") for name in sorted(environ) if stands_in_file(name)]
    prefixed = [
        (name.removeprefix(ENVIRONMENT_PREFIX), environ[name], f" ({ENVIRONMENT_PREFIX})")
        for name in sorted(environ)
        if name.startswith(ENVIRONMENT_PREFIX)
    ]
    for key, value, source in bare + prefixed:
        if value.startswith("${") and value.endswith("}"):
            value = environ.get(value[2:-1], "")
        yield Setting(key, value, "env", _ENVIRONMENT + source)


def _can_be_asked(url: str) -> bool:
    """Return whether host and port of a URL are such that it could be connected to."""
    try:
        parts = urlsplit(url.strip())
        return bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def _pages_below(path: str) -> list[str]:
    """Return the paths of this proxy whose place a route takes; the page at `/` gives way to a route at `/` unsaid."""
    route = "/" + "/".join(filter(None, path.split("/")))
    if route == "/":
        return []
    return [
        own.rstrip("/")
        for own in _OWN_PATHS
        if f"{own}/".startswith(f"{route}/") or (own.endswith("/") and route.startswith(own))
    ]
