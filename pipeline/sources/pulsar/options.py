"""How a user names a topic and says how it is to be read, and how that travels to Spark's processes.

Rule: what is here shows in Spark's plans, so that it names secrets (a file, an environment variable), never holds one.
"""

import argparse
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from typing import Final, Literal, get_args
from urllib.parse import SplitResult, urlsplit

from pipeline.core.errors import PipelineError

AuthKind = Literal["none", "token", "tls", "basic", "oauth2"]
OnDataLoss = Literal["fail", "warn"]

SCHEMES: Final = ("pulsar://", "pulsar+ssl://")
# Options that mean nothing to a source that is no topic; what to do about a loss every source must know.
OF_TOPICS: Final = (
    *("start", "max_events", "read_timeout", "receiver_queue", "admin_url", "auth", "auth_file", "auth_env"),
    *("tls_trust", "tls_certificate", "tls_key", "no_tls_hostname_check"),
)
_HOST: Final = r"(?:\[[0-9A-Fa-f:.]+\]|[^\s:,/\[\]]+)(?::[0-9]{1,5})?"
_HOSTS: Final = re.compile(f"{_HOST}(?:,{_HOST})*")
_MILLIS: Final = 1000


@dataclass(frozen=True, slots=True)
class PulsarSettings:
    """Which topic, how to log in, and how to read it.

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


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of a job that reads a topic; the job itself declares `--source`."""
    group = parser.add_argument_group("topics", "for --source pulsar://HOST:PORT/TENANT/NAMESPACE/TOPIC")
    group.add_argument(
        "--start",
        default="earliest",
        metavar="WHEN",
        help="where a new stream, or a batch, begins: earliest, latest, or a time such as 2026-11-21T10:00:00Z"
        " (default: %(default)s)",
    )
    group.add_argument(
        "--max-events",
        type=int,
        default=0,
        metavar="N",
        help="about so many events in a batch of a stream, in whole entries; 0: no bound; needs --admin-url",
    )
    group.add_argument(
        "--on-data-loss",
        choices=get_args(OnDataLoss),
        default="fail",
        help="when events are gone before they were read (default: %(default)s)",
    )
    group.add_argument(
        "--read-timeout", type=int, default=60, metavar="S", help="longest silence of a broker (default: %(default)s)"
    )
    group.add_argument(
        "--receiver-queue",
        type=int,
        default=1000,
        metavar="N",
        help="messages that a task holds before they are read: its memory (default: %(default)s)",
    )
    add_connection(parser)


def add_connection(parser: argparse.ArgumentParser) -> None:
    """Declare the options that say where a cluster is and how to log in."""
    group = parser.add_argument_group("cluster")
    group.add_argument(
        "--admin-url",
        default="",
        metavar="URL",
        help="admin interface, as http://HOST:8080; without it lost events go unnoticed and --max-events does nothing",
    )
    group.add_argument(
        "--auth", choices=get_args(AuthKind), default="none", help="how to log in (default: %(default)s)"
    )
    group.add_argument(
        "--auth-file",
        default="",
        metavar="FILE",
        help="file with the token, with USER:PASSWORD (basic), or with the JSON of pulsar-client's parameters (oauth2)",
    )
    group.add_argument(
        "--auth-env", default="", metavar="NAME", help="the same in an environment variable, of all Spark's processes"
    )
    group.add_argument("--tls-trust", default="", metavar="FILE", help="certificates to trust; default: the system's")
    group.add_argument("--tls-certificate", default="", metavar="FILE", help="own certificate, for --auth tls")
    group.add_argument("--tls-key", default="", metavar="FILE", help="key of --tls-certificate")
    group.add_argument(
        "--no-tls-hostname-check", action="store_true", help="trust a certificate whatever host it is for"
    )


def settings(options: argparse.Namespace) -> PulsarSettings:
    """Take out what `add_arguments` declared, and `source`; raises PipelineError for what makes no sense."""
    service_url, topic = split_source(options.source)
    for name, least in (("max_events", 0), ("read_timeout", 1), ("receiver_queue", 1)):
        if getattr(options, name) < least:
            got = getattr(options, name)
            raise PipelineError(f"--{name.replace('_', '-')}: got {got}, expected a number from {least}")
    if options.max_events and not options.admin_url:
        raise PipelineError("--max-events: got no --admin-url, which says how much there is to read: set it")
    return connection(
        options,
        service_url,
        topic,
        start=_start(options.start),
        max_events=options.max_events,
        on_data_loss=options.on_data_loss,
        read_timeout_seconds=options.read_timeout,
        receiver_queue=options.receiver_queue,
    )


def connection(options: argparse.Namespace, service_url: str, topic: str, **reading: object) -> PulsarSettings:
    """Take out what `add_connection` declared; raises PipelineError."""
    if options.admin_url:
        _check_admin_url(options.admin_url)
    _check_auth(options)
    given: dict[str, object] = {
        "admin_url": options.admin_url.rstrip("/"),
        "auth": options.auth,
        "auth_file": options.auth_file,
        "auth_env": options.auth_env,
        "tls_trust": options.tls_trust,
        "tls_certificate": options.tls_certificate,
        "tls_key": options.tls_key,
        "tls_check_hostname": not options.no_tls_hostname_check,
    }
    return PulsarSettings(service_url, topic, **{**given, **reading})  # type: ignore[arg-type]


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
    _refuse_secrets("--admin-url", url)
    parts = _split(url)
    known = url.startswith(("http://", "https://"))
    if parts is None or not known or parts.query or parts.fragment or "," in parts.netloc:
        raise PipelineError(f"--admin-url: got {without_user(url)!r}, expected http://HOST:PORT or https://HOST:PORT")


def split_source(source: str) -> tuple[str, str]:
    """Part `pulsar://HOST:PORT[,...]/TENANT/NAMESPACE/TOPIC` into service URL and topic; raises PipelineError."""
    _refuse_secrets("--source", source)
    parts = _split(source)
    words = [] if parts is None else parts.path.removeprefix("/").split("/")
    odd = parts is None or parts.query or parts.fragment or len(words) != 3 or not all(words)
    if odd or not source.startswith(SCHEMES):
        raise PipelineError(
            f"--source: got {without_user(source)!r}, expected pulsar://HOST:PORT/TENANT/NAMESPACE/TOPIC"
        )
    assert parts is not None
    return f"{parts.scheme}://{parts.netloc}", f"persistent://{'/'.join(words)}"


def _split(url: str) -> SplitResult | None:
    """Give the parts of a URL, None if it names no host, or no port that can be."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return None
    ports = [int(port) for port in re.findall(r":([0-9]+)(?:,|$)", parts.netloc)]
    return parts if _HOSTS.fullmatch(parts.netloc) and all(0 < port < 65_536 for port in ports) else None


def _refuse_secrets(option: str, url: str) -> None:
    # It would show in plans and logs.
    if re.search(r"://[^/?#]*@", url):
        raise PipelineError(f"{option}: got a URL with a user in it: use --auth, with --auth-file or --auth-env")


def without_user(url: str) -> str:
    """Give a URL as it may be shown: whatever is before its last @ may be a secret."""
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
    return str(int(when.timestamp() * _MILLIS))


def to_spark(settings: PulsarSettings) -> dict[str, str]:
    """Write settings as options of the data source."""
    return {field.name: str(getattr(settings, field.name)) for field in fields(settings)}


def from_spark(options: Mapping[str, str]) -> PulsarSettings:
    """Read options of the data source, whose names come in lower case; raises PipelineError."""
    known = {field.name: field.type for field in fields(PulsarSettings)}
    # What Spark adds, such as a path, is not for us.
    given: dict[str, object] = {name: value for name, value in options.items() if name in known}
    if missing := {"service_url", "topic"} - given.keys():
        raise PipelineError(f"format pulsar_events: expected the options {', '.join(sorted(missing))}")
    for name in given.keys() & {"max_events", "read_timeout_seconds", "receiver_queue"}:
        given[name] = int(str(given[name]))
    if "tls_check_hostname" in given:
        given["tls_check_hostname"] = str(given["tls_check_hostname"]).lower() != "false"
    return PulsarSettings(**given)  # type: ignore[arg-type]
