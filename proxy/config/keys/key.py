"""Declaration of a configuration key: its name, default, parser, unit and the text for operators.

Rule: a bad declaration fails at import; a bad value fails in `parse` with the expected form. A `Key` is a descriptor:
`Config.service_port` is the key, and `config.service_port` is its value, as fast as a plain attribute. A key knows
neither files nor other keys.
"""

import functools
import ipaddress
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Generic, Literal, TypeVar, overload

from proxy.config.keys.log_components import COMPONENTS, LEVELS
from proxy.config.keys.networks import host_in, networks_in
from proxy.core.secrets import HIDDEN, masked

T = TypeVar("T")
Since = Literal["pulsar", "pip-442", "ours"]

_JAVA_NAME = re.compile(r"[a-z][A-Za-z0-9]*")
_HOST_AND_PORT = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::([0-9]{1,5}))?/?")
_HTTP_URL = re.compile(
    r"(https?)://(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::([0-9]{1,5}))?(/[\w.~!$&'()*+,;=:%/-]*)?", re.A
)
_DOTS = re.compile(r"/\.\.?(?:/|\Z)")
PLAIN_SCHEME = "pulsar://"
TLS_SCHEME = "pulsar+ssl://"
_PORTS = {PLAIN_SCHEME: 6650, TLS_SCHEME: 6651}


class BadValue(ValueError):
    """The value is not valid for its key; the text describes valid values."""


@dataclass(frozen=True, slots=True)
class Kind(Generic[T]):
    """The type of a value: its valid values, parser and writer.

    `parse` gets text without surrounding blanks. It raises ValueError for what is not `expected`, or `BadValue` with a
    text of its own. `blank_is_default`: as in the Java proxy, a blank number means its default, but a blank text stays
    blank.
    """

    expected: str
    parse: Callable[[str], T]
    blank_is_default: bool = False
    write: Callable[[T], str] = str


@dataclass(frozen=True, slots=True, eq=False)
class Key(Generic[T]):
    """A declared key; files, documents, flags and messages are derived from the declaration.

    `since`: "pulsar" marks a key of the Java proxy with the same meaning, "pip-442" the six limits of that proposal,
    "ours" a key of this proxy only. `dynamic` keys may change while the proxy runs. `better` describes what a key of
    the Java proxy does in addition here, `less` what is missing and what happens at the start (docs/compatibility.md).
    `section` is that of the class which declares the key.
    """

    name: str
    default: T
    kind: Kind[T]
    doc: str
    unit: str = ""
    since: Since = "ours"
    dynamic: bool = False
    secret: bool = False
    required: bool = False
    better: str = ""
    less: str = ""
    section: str = field(default="", init=False)

    def __set_name__(self, owner: type, name: str) -> None:
        """Take the section of the class that declares the key."""
        object.__setattr__(self, "section", vars(owner)["section"])

    def __post_init__(self) -> None:
        """Check the declaration; raise TypeError for a bad name, text or default."""
        if not _JAVA_NAME.fullmatch(self.name):
            raise TypeError(f"key name: got {self.name!r}, expected camelCase as in proxy.conf")
        if not self.doc.endswith("."):
            raise TypeError(f"{self.name}: the text for the operator must be a sentence")
        if self.required:
            return
        try:
            read_back = self.parse(self.default_text)
        except BadValue as error:
            raise TypeError(f"{self.name}: default: got {self.default!r}, expected {error}") from error
        if read_back != self.default:
            raise TypeError(f"{self.name}: the default {self.default!r} does not survive writing and reading")

    @property
    def default_text(self) -> str:
        """The default as text of proxy.conf."""
        return self.kind.write(self.default)

    @property
    def attribute(self) -> str:
        """The attribute of `Config` that holds this key's value."""
        return snake_case(self.name)

    def parse(self, text: str) -> T:
        """Return the value of a text; raise `BadValue`."""
        stripped = text.strip()
        if not stripped and self.kind.blank_is_default:
            return self.default
        try:
            return self.kind.parse(stripped)
        except BadValue:
            raise
        except (ValueError, LookupError) as error:
            raise BadValue(self.kind.expected) from error

    def shown(self, value: T) -> str:
        """Return a value as text for operators, with secrets hidden."""
        return HIDDEN if self.secret and value else masked(self.kind.write(value))

    def shown_text(self, text: str) -> str:
        """Return an unparsed value for operators, with secrets hidden."""
        return HIDDEN if self.secret and text else masked(text)

    # Only __get__ is defined, so the value in the instance's __dict__ takes precedence and costs no call.
    @overload
    def __get__(self, instance: None, owner: type) -> "Key[T]": ...
    @overload
    def __get__(self, instance: object, owner: type) -> T: ...
    def __get__(self, instance: object | None, owner: type) -> "Key[T] | T":
        return self if instance is None else self.default


# Each configuration asks for the attribute of each key several times: most of the time that reading it took.
@functools.cache
def snake_case(name: str) -> str:
    """Return the attribute name of a key: `brokerServiceURL` -> `broker_service_url`."""
    words = re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", name.replace("URLTLS", "URLTls"))
    return re.sub(r"([A-Z]+)([A-Z][a-z])", r"\1_\2", words).lower()


def whole(least: int, most: int) -> Kind[int]:
    """Return the kind of whole numbers from `least` to `most`, both included."""
    expected = f"a whole number from {least} to {most}"
    return Kind(expected, lambda text: _whole(text, least, most), blank_is_default=True)


def _whole(text: str, least: int, most: int) -> int:
    if not re.fullmatch(r"-?[0-9]{1,19}", text) or not least <= int(text) <= most:
        raise ValueError
    return int(text)


def limit(most: int) -> Kind[int]:
    """Return the kind of limits from 1 to `most`; 0, which is no limit in the Java proxy, stands for `most`."""
    return Kind(whole(0, most).expected, lambda text: _whole(text, 0, most) or most, blank_is_default=True)


def whole_or_blank(least: int, most: int) -> Kind[int | None]:
    """Return the kind of whole numbers in a range; blank is None: no such port, or a choice left to the proxy."""
    return Kind(
        f"a whole number from {least} to {most}, or an empty value",
        lambda text: _whole(text, least, most) if text else None,
        write=lambda value: "" if value is None else str(value),
    )


def choice(*values: str) -> Kind[str]:
    """Return the kind of a word out of `values`, in any case."""
    return Kind("one of " + ", ".join(values), lambda text: values[values.index(text.lower())], blank_is_default=True)


def boolean() -> Kind[bool]:
    """Return the kind of `true` and `false`, in any case."""
    values = {"true": True, "false": False}
    return Kind("true or false", lambda text: values[text.lower()], True, lambda value: "true" if value else "false")


def _checked(expected: str, holds: Callable[[str], object]) -> Kind[str]:
    """Return the kind of texts that are kept as they are; blank is allowed. `holds` may raise ValueError, too."""

    def parse(text: str) -> str:
        if text and not holds(text):
            raise ValueError
        return text

    return Kind(expected, parse)


def text() -> Kind[str]:
    """Return the kind of text without control characters, which must not reach log lines and file names."""
    return _checked("text without control characters", str.isprintable)


def secret_text(least_bytes: int) -> Kind[str]:
    """Return the kind of a secret that nobody can find by trying; blank is allowed."""
    return _checked(
        f"text without control characters of at least {least_bytes} bytes, or an empty value",
        lambda text: text.isprintable() and len(text.encode(errors="surrogatepass")) >= least_bytes,
    )


def host() -> Kind[str]:
    """Return the kind of a host name or an IP address; blank is allowed."""
    listed = _read("a host name or an IP address", host_in)

    def parse(value: str) -> str:
        found = listed.parse(value)
        if len(found) > 1:
            raise ValueError
        return found[0] if found else ""

    return Kind(listed.expected, parse)


def hosts(*, needed: bool = False) -> Kind[tuple[str, ...]]:
    """Return the kind of lists of host names and IP addresses; blank is an empty list, or the default if `needed`."""
    listed = _read("host names or IP addresses separated by commas", host_in)

    def parse(value: str) -> tuple[str, ...]:
        found = tuple(dict.fromkeys(listed.parse(value)))
        if needed and not found:
            raise ValueError
        return found

    return replace(listed, parse=parse, blank_is_default=needed)


def mode() -> Kind[str]:
    """Return the kind of the permissions of a file, in octal."""

    def parse(value: str) -> str:
        if not re.fullmatch(r"0?[0-7]{3}", value):
            raise ValueError
        return f"0{value[-3:]}"

    return Kind("permissions in octal such as 0660", parse, blank_is_default=True)


def address() -> Kind[str]:
    """Return the kind of an IP address or `localhost` with a port, such as 127.0.0.1:7070; blank is allowed."""
    return _checked("an IP address and a port, such as 127.0.0.1:7070 or [::1]:7070", split_address)


def split_address(value: str) -> tuple[str, int, bool]:
    """Return the IP address and port, and whether the address is loopback; raise ValueError.

    Port 0 means any free port.
    """
    host, _, port = value.rpartition(":")
    if not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise ValueError(f"got port {port!r}")
    if (host.startswith("[") and host.endswith("]")) != (":" in host):
        raise ValueError(f"got host {host!r}")
    found = ipaddress.ip_address("127.0.0.1" if host == "localhost" else host.strip("[]"))
    return str(found), int(port), found.is_loopback


def _shown_items(value: str, wrong: list[str]) -> str:
    """Return the wrong items as text; nothing if any part of the value has to be hidden."""
    shown = ", ".join(item if item.isprintable() else repr(item) for item in wrong)
    return f" (wrong: {shown})" if masked(value) == value else ""


def _listed(expected: str, accepts: Callable[[str], bool]) -> Kind[tuple[str, ...]]:
    def read(item: str) -> str:
        if not accepts(item):
            raise ValueError
        return item

    return _read(expected, read)


def _read(expected: str, read: Callable[[str], str]) -> Kind[tuple[str, ...]]:
    """Return the kind of lists whose items `read` returns as they are kept, or refuses by a ValueError with a hint."""

    def parse(value: str) -> tuple[str, ...]:
        items: list[str] = []
        wrong: list[str] = []
        for item in filter(None, map(str.strip, value.split(","))):
            try:
                items.append(read(item))
            except ValueError as error:
                wrong.append(f"{item}: {error}" if str(error) else item)
        if wrong:
            raise BadValue(expected + _shown_items(value, wrong))
        return tuple(items)

    return Kind(expected, parse, write=",".join)


def host_patterns() -> Kind[tuple[str, ...]]:
    """Return the kind of lists of host names in which `*` stands for any text."""
    return _listed(
        "host names separated by commas, * stands for any text",
        lambda item: re.fullmatch(r"[A-Za-z0-9._*:-]+", item) is not None,
    )


def networks() -> Kind[tuple[str, ...]]:
    """Return the kind of lists of IP addresses and networks, in CIDR form or with `*` and ranges in parts, or `*`."""
    return _read("IP addresses or networks such as 10.0.0.0/8 or 10.0.*.* separated by commas, or *", _network)


def networks_or_unix() -> Kind[tuple[str, ...]]:
    """Return the kind of lists of networks, with the word `unix` for the clients of a Unix socket."""
    expected = "IP addresses or networks such as 10.0.0.0/8 or 10.0.*.*, or unix, separated by commas, or *"
    return _read(expected, lambda item: item if item == "unix" else _network(item))


def _network(item: str) -> str:
    if item != "*":
        networks_in(item)
    return item


def ports() -> Kind[tuple[str, ...]]:
    """Return the kind of lists of TCP ports, or `*`."""
    return _listed(
        "ports from 1 to 65535 separated by commas, or *",
        lambda item: item == "*" or (item.isascii() and item.isdigit() and 1 <= int(item) <= 65535),
    )


def port_numbers() -> Kind[tuple[int, ...]]:
    """Return the kind of lists of TCP ports and port ranges, such as 6700-6709; blank is an empty list."""
    expected = "ports from 1 to 65535, or ranges such as 6700-6709, separated by commas"

    def parse(value: str) -> tuple[int, ...]:
        found: dict[int, None] = {}
        for item in filter(None, map(str.strip, value.split(","))):
            first, _, last = item.partition("-")
            last = last or first
            if not (first.isascii() and last.isascii() and first.isdigit() and last.isdigit()):
                raise BadValue(expected + _shown_items(value, [item]))
            if not 1 <= int(first) <= int(last) <= 65535:
                raise BadValue(expected + _shown_items(value, [item]))
            found |= dict.fromkeys(range(int(first), int(last) + 1))
        return tuple(found)

    return Kind(expected, parse, write=lambda ports: ",".join(map(str, ports)))


def words() -> Kind[tuple[str, ...]]:
    """Return the kind of names separated by commas; blank is an empty list."""
    return _listed("names separated by commas", str.isprintable)


def component_levels() -> Kind[tuple[str, ...]]:
    """Return the kind of lists of a component of the log and its level, such as `brokers=debug`; blank is empty."""
    expected = f"component=level pairs separated by commas, of {', '.join(COMPONENTS)} and {', '.join(LEVELS)}"

    def parse(value: str) -> tuple[str, ...]:
        found: dict[str, str] = {}
        for item in filter(None, map(str.strip, value.split(","))):
            component, _, level = (part.strip() for part in item.partition("="))
            if component not in COMPONENTS or level not in LEVELS or component in found:
                raise BadValue(expected + _shown_items(value, [item]))
            found[component] = level
        return tuple(f"{component}={level}" for component, level in found.items())

    return Kind(expected, parse, write=",".join)


def topic_patterns() -> Kind[tuple[str, ...]]:
    """Return the kind of lists of topic names in which `*` stands for any text, and `!` spares; blank is empty."""
    return _listed("names of topics separated by commas, * stands for any text, ! spares", str.isprintable)


def origins() -> Kind[tuple[str, ...]]:
    """Return the kind of lists of web origins, or `*`; blank is an empty list."""
    return _listed(
        "origins such as https://console.example.org or http://host:port separated by commas, or *",
        lambda item: item in ("*", "null") or re.fullmatch(r"[a-z][a-z0-9+.-]*://[^\s/?#@]+", item) is not None,
    )


def decimal(least: float, most: float) -> Kind[float]:
    """Return the kind of numbers from `least` to `most`, both included, such as 100.0."""

    def parse(value: str) -> float:
        if not re.fullmatch(r"[0-9]{1,15}(\.[0-9]{1,15})?", value) or not least <= float(value) <= most:
            raise ValueError
        return float(value)

    return Kind(f"a number from {least:g} to {most:g}", parse, blank_is_default=True)


def fraction() -> Kind[float]:
    """Return the kind of parts of a whole, from 0 to 1; a percentage is refused with what it would be."""
    expected = "a fraction from 0 to 1, such as 0.85"

    def parse(value: str) -> float:
        if not re.fullmatch(r"[0-9]{1,15}(\.[0-9]{1,15})?%?", value):
            raise ValueError
        number = float(value.removesuffix("%"))
        if number > 1 or value.endswith("%"):
            raise BadValue(f"{expected}; {number:g} percent is {number / 100:g}" if number <= 100 else expected)
        return number

    return Kind(expected, parse, blank_is_default=True)


def json_object() -> Kind[str]:
    """Return the kind of a JSON object of texts, kept as text; blank is allowed."""
    return _checked('a JSON object of texts such as {"name": "value"}', _is_object_of_texts)


def _is_object_of_texts(value: str) -> bool:
    import json  # imported only if such a key is set

    try:
        found = json.loads(value)
    except RecursionError:
        return False
    return isinstance(found, dict) and all(isinstance(item, str) for item in found.values())


def broker_urls(*, tls: bool = False) -> Kind[str]:
    """Return the kind of broker addresses, or a load balancer: `pulsar://host:port`, more hosts after commas.

    The scheme is required: a TLS address in the key for plain ones would fail only at the first lookup.
    """
    expected = f"{TLS_SCHEME if tls else PLAIN_SCHEME}host:port, several separated by commas"
    return _checked(expected, lambda value: split_broker_urls(value, tls=tls))


def split_broker_urls(value: str, *, tls: bool = False) -> tuple[tuple[str, int], ...]:
    """Return hosts and ports of `pulsar://a:6650,b:6650`, with schemes after the first optional; raise ValueError.

    The default port is 6650, with TLS 6651.
    """
    scheme = TLS_SCHEME if tls else PLAIN_SCHEME
    if not value.startswith(scheme):
        raise ValueError
    return tuple(dict.fromkeys(_host_and_port(item.strip(), scheme) for item in value.split(",")))


def _host_and_port(item: str, scheme: str) -> tuple[str, int]:
    found = _HOST_AND_PORT.fullmatch(item.removeprefix(scheme))
    port = int(found.group(2) or _PORTS[scheme]) if found else 0
    if found is None or not 1 <= port <= 65535:
        raise ValueError
    return found.group(1).strip("[]"), port


def web_urls(*schemes: str) -> Kind[tuple[str, ...]]:
    """Return the kind of lists of web services as `http://host:port`, separated by commas.

    A path is that of a gateway which serves them below it: it stands before each path that is asked for.
    """
    schemes = schemes or ("http", "https")
    expected = " or ".join(f"{scheme}://host:port[/path]" for scheme in schemes) + ", several separated by commas"
    return _listed(expected, lambda item: is_web_url(item, *schemes))


def is_web_url(text: str, *schemes: str) -> bool:
    """Return whether a text is the URL of a web service, with a path or without."""
    found = _HTTP_URL.fullmatch(text)
    if found is None or found[1] not in (schemes or ("http", "https")) or _DOTS.search(found[3] or ""):
        return False
    return found[2] is None or 1 <= int(found[2]) <= 65535
