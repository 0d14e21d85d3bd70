"""Options by which a user names a topic and says how it is to be read, and their way to Spark's processes.

Rule: what is here shows in Spark's plans, so that it names secrets (a file, an environment variable), never holds one.
"""

import argparse
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from datetime import UTC, datetime
from typing import Any, Final, Literal, get_args
from urllib.parse import SplitResult, urlsplit

from pipeline.core.errors import PipelineError

AuthKind = Literal["none", "token", "tls", "basic", "oauth2"]
OnDataLoss = Literal["fail", "warn"]

SCHEMES: Final = ("pulsar://", "pulsar+ssl://")
_HOST: Final = r"(?:\[[0-9A-Fa-f:.]+\]|[^\s:,/\[\]]+)(?::[0-9]{1,5})?"
_HOSTS: Final = re.compile(f"{_HOST}(?:,{_HOST})*")
_READERS: Final[Mapping[Any, Callable[[str], Any]]] = {int: int, bool: lambda text: text.lower() != "false"}


@dataclass(frozen=True, slots=True)
class PulsarSettings:
    """The topic, how to log in, and how to read it.

    `topic` is `persistent://tenant/namespace/name`; `start` is `earliest`, `latest` or milliseconds since 1970;
    `max_events` bounds a batch of a stream, 0 does not. Without `admin_url` the cluster's admin interface is not asked.
    `window` fixes what a batch reads (`source.window_of`); without it that is what the topic holds at each action.
    """

    service_url: str
    topic: str
    admin_url: str = ""
    start: str = "earliest"
    window: str = ""
    max_events: int = 0
    on_data_loss: OnDataLoss = "fail"
    read_timeout_seconds: int = 60
    receiver_queue: int = 1000
    auth: AuthKind = "none"
    auth_file: str = ""
    auth_env: str = ""
    tls_trust: str = ""
    tls_certificate: str = ""
    tls_key: str = ""
    tls_check_hostname: bool = True


# Each option with what it takes, and its help; type, default and choices are those of the setting.
_READING: Final = {
    "--start WHEN": "where a new stream, or a batch, begins: earliest, latest, or a time such as 2026-11-21T10:00:00Z"
    " (default: %(default)s)",
    "--max-events N": "about so many events in a batch of a stream, in whole entries; 0: no bound; needs --admin-url",
    "--on-data-loss": "when events are gone before they were read (default: %(default)s)",
    "--read-timeout S": "longest silence of a broker (default: %(default)s)",
    "--receiver-queue N": "messages that a task holds before they are read: its memory (default: %(default)s)",
}
_CLUSTER: Final = {
    "--admin-url URL": "admin interface, as http://HOST:8080; without it lost events go unnoticed and --max-events does"
    " nothing",
    "--auth": "how to log in (default: %(default)s)",
    "--auth-file FILE": "file with the token, with USER:PASSWORD (basic), or with the JSON of pulsar-client's"
    " parameters (oauth2)",
    "--auth-env NAME": "the same in an environment variable, of all Spark's processes",
    "--tls-trust FILE": "certificates to trust; default: the system's",
    "--tls-certificate FILE": "own certificate, for --auth tls",
    "--tls-key FILE": "key of --tls-certificate",
    "--no-tls-hostname-check": "trust a certificate whatever host it is for",
}
# Settings with another name than their options.
_SETTINGS: Final = {"read_timeout": "read_timeout_seconds", "no_tls_hostname_check": "tls_check_hostname"}


def _name(option: str) -> str:
    return option.partition(" ")[0].removeprefix("--").replace("-", "_")


# Options that mean nothing to a source that is no topic; what to do about a loss every source must know.
OF_TOPICS: Final = tuple(name for name in map(_name, [*_READING, *_CLUSTER]) if name != "on_data_loss")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of a job that reads a topic; the job itself declares `--source`."""
    _declare(parser.add_argument_group("topics", "for --source pulsar://HOST:PORT/TENANT/NAMESPACE/TOPIC"), _READING)
    add_connection(parser)


def add_connection(parser: argparse.ArgumentParser) -> None:
    """Declare the options that say where a cluster is and how to log in."""
    _declare(parser.add_argument_group("cluster"), _CLUSTER)


def _declare(group: argparse._ArgumentGroup, texts: Mapping[str, str]) -> None:
    known = {field.name: field for field in fields(PulsarSettings)}
    for option, text in texts.items():
        flag, _, metavar = option.partition(" ")
        setting = known[_SETTINGS.get(_name(option), _name(option))]
        how: dict[str, Any] = {"action": "store_true"}
        if setting.type is not bool:
            how = {"default": setting.default, "metavar": metavar or None, "choices": get_args(setting.type) or None}
            how["type"] = int if setting.type is int else None
        group.add_argument(flag, help=text, **how)


def _given(options: argparse.Namespace, texts: Mapping[str, str]) -> dict[str, Any]:
    return {_SETTINGS.get(name, name): getattr(options, name) for name in map(_name, texts)}


def settings(options: argparse.Namespace) -> PulsarSettings:
    """Take out what `add_arguments` declared, and `source`; raises PipelineError for what makes no sense."""
    service_url, topic = split_source(options.source)
    for name, least in (("max_events", 0), ("read_timeout", 1), ("receiver_queue", 1)):
        if (got := getattr(options, name)) < least:
            raise PipelineError(f"--{name.replace('_', '-')}: got {got}, expected a number from {least}")
    if options.max_events and not options.admin_url:
        raise PipelineError("--max-events: got no --admin-url, which says how much there is to read: set it")
    reading = _given(options, _READING) | {"start": _start(options.start)}
    return replace(connection(options, service_url, topic), **reading)


def connection(options: argparse.Namespace, service_url: str, topic: str) -> PulsarSettings:
    """Take out what `add_connection` declared; raises PipelineError."""
    if options.admin_url:
        _check_admin_url(options.admin_url)
    _check_auth(options)
    made = {"admin_url": options.admin_url.rstrip("/"), "tls_check_hostname": not options.no_tls_hostname_check}
    return PulsarSettings(service_url, topic, **_given(options, _CLUSTER) | made)


def _check_auth(options: argparse.Namespace) -> None:
    if bool(options.tls_certificate) != bool(options.tls_key):
        raise PipelineError("--tls-certificate and --tls-key: got one of them, expected both")
    if options.auth == "tls" and not options.tls_certificate:
        raise PipelineError("--auth tls: expected --tls-certificate and --tls-key")
    named = bool(options.auth_file) + bool(options.auth_env)
    if options.auth in ("token", "basic", "oauth2") and named != 1:
        raise PipelineError(f"--auth {options.auth}: expected one of --auth-file and --auth-env, got {named}")
    if options.auth in ("none", "tls") and named:
        raise PipelineError(f"--auth {options.auth}: takes no --auth-file and no --auth-env")


def _check_admin_url(url: str) -> None:
    parts = _split("--admin-url", url)
    known = url.startswith(("http://", "https://"))
    if parts is None or not known or parts.query or parts.fragment or "," in parts.netloc:
        raise PipelineError(f"--admin-url: got {without_user(url)!r}, expected http://HOST:PORT or https://HOST:PORT")


def split_source(source: str) -> tuple[str, str]:
    """Split `pulsar://HOST:PORT[,...]/TENANT/NAMESPACE/TOPIC` into service URL and topic; raises PipelineError."""
    parts = _split("--source", source)
    words = [] if parts is None else parts.path.removeprefix("/").split("/")
    odd = parts is None or parts.query or parts.fragment or len(words) != 3 or not all(words)
    if odd or not source.startswith(SCHEMES):
        raise PipelineError(
            f"--source: got {without_user(source)!r}, expected pulsar://HOST:PORT/TENANT/NAMESPACE/TOPIC"
        )
    assert parts is not None
    return f"{parts.scheme}://{parts.netloc}", f"persistent://{'/'.join(words)}"


def _split(option: str, url: str) -> SplitResult | None:
    """Return the parts of a URL, None if it names no host, or no port that can be; raises PipelineError for a user."""
    # A secret would show in plans and logs.
    if re.search(r"://[^/?#]*@", url):
        raise PipelineError(f"{option}: got a URL with a user in it: use --auth, with --auth-file or --auth-env")
    try:
        parts = urlsplit(url)
    except ValueError:
        return None
    ports = [int(port) for port in re.findall(r":([0-9]+)(?:,|$)", parts.netloc)]
    return parts if _HOSTS.fullmatch(parts.netloc) and all(0 < port < 65_536 for port in ports) else None


def without_user(url: str) -> str:
    """Return a URL as it may be shown: whatever is before its last @ may be a secret."""
    return re.sub(r"(://).*@", r"\1...@", url, flags=re.DOTALL)


def _start(given: str) -> str:
    if given in ("earliest", "latest"):
        return given
    try:
        when = datetime.fromisoformat(given)
    except ValueError:
        raise PipelineError(
            f"--start: got {given!r}, expected earliest, latest, or a time such as 2026-11-21T10:00:00Z"
        ) from None
    if when.tzinfo is None:
        when = when.replace(tzinfo=UTC)
    if when.timestamp() < 0:
        raise PipelineError(f"--start: got {given!r}, expected a time after 1970")
    return str(int(when.timestamp() * 1000))


def to_spark(settings: PulsarSettings) -> dict[str, str]:
    """Write settings as options of the data source."""
    return {name: str(value) for name, value in asdict(settings).items()}


def from_spark(options: Mapping[str, str]) -> PulsarSettings:
    """Read options of the data source, whose names come in lower case; raises PipelineError."""
    # Options that Spark adds, such as a path, are not for us.
    known = [field for field in fields(PulsarSettings) if field.name in options]
    given = {field.name: _READERS.get(field.type, str)(options[field.name]) for field in known}
    if missing := {"service_url", "topic"} - given.keys():
        raise PipelineError(f"format pulsar_events: expected the options {', '.join(sorted(missing))}")
    return PulsarSettings(**given)
