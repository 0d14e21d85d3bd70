"""Options by which a user names a topic and says how it is to be read, and their way to Spark's processes.

Rule: what is here shows in Spark's plans, so that it names the file of a secret, never holds one.
"""

import argparse
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Final, Literal

from eventlog.topic_admin import topic_name
from pipeline.core.errors import PipelineError

SCHEMES: Final = ("pulsar://", "pulsar+ssl://")
# Options that mean nothing to a source that is no topic.
OF_TOPICS: Final = (
    "max_entries", "admin_url", "on_data_loss", "auth_file", "tls_trust", "tls_certificate", "tls_key",
    "no_tls_hostname_check",
)  # fmt: skip
# A user in a URL would be a secret that shows in plans and logs.
_SOURCE: Final = re.compile(r"(pulsar(?:\+ssl)?://[^\s/?#@]+)/(.+)")
_ADMIN_URL: Final = re.compile(r"https?://[^\s/?#@,]+(/[^\s?#@]*)?")


@dataclass(frozen=True, slots=True)
class Login:
    """How to log in, to brokers and to the admin interface: files, and whether a certificate must be for its host."""

    auth_file: str = ""
    tls_trust: str = ""
    tls_certificate: str = ""
    tls_key: str = ""
    tls_check_hostname: bool = True


@dataclass(frozen=True, slots=True)
class PulsarSettings:
    """The topic, `persistent://tenant/namespace/name`, and how to read it.

    A batch has `max_entries` entries: each is what a producer sent at once.
    """

    service_url: str
    topic: str
    admin_url: str
    login: Login = field(default_factory=Login)
    max_entries: int = 10_000
    on_data_loss: Literal["fail", "warn"] = "fail"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of a job that reads a topic; the job itself declares `--source`."""
    group = parser.add_argument_group("topics", "for --source pulsar://HOST:PORT/TENANT/NAMESPACE/TOPIC")
    add = group.add_argument
    add("--admin-url", default="", metavar="URL", help="admin interface of the cluster, as http://HOST:8080")
    text = "of one batch; an entry is what a proxy sent at once, up to 256 KiB of events (default: %(default)s)"
    add("--max-entries", type=int, default=10_000, metavar="N", help=text)
    text = "when events are gone before they were read (default: %(default)s)"
    add("--on-data-loss", choices=("fail", "warn"), default="fail", help=text)
    text = "file with a token, or with JSON of issuer_url and private_key (OAuth 2.0); read again whenever it is used"
    add("--auth-file", default="", metavar="FILE", help=text)
    add("--tls-trust", default="", metavar="FILE", help="certificates to trust; default: the system's")
    add("--tls-certificate", default="", metavar="FILE", help="own certificate; without --auth-file it is the login")
    add("--tls-key", default="", metavar="FILE", help="key of --tls-certificate")
    text = "trust a certificate whatever host it is for"
    add("--no-tls-hostname-check", action="store_true", help=text)


def settings(options: argparse.Namespace) -> PulsarSettings:
    """Take out what `add_arguments` declared, and `source`; raises PipelineError for what makes no sense."""
    service_url, topic = split_source(options.source)
    if not _ADMIN_URL.fullmatch(options.admin_url):
        got = repr(without_user(options.admin_url)) if options.admin_url else "none"
        raise PipelineError(f"--admin-url: got {got}, expected http://HOST:PORT or https://HOST:PORT")
    if options.max_entries < 1:
        raise PipelineError(f"--max-entries: got {options.max_entries}, expected a number from 1")
    if bool(options.tls_certificate) != bool(options.tls_key):
        raise PipelineError("--tls-certificate and --tls-key: got one of them, expected both")
    login = Login(
        options.auth_file,
        options.tls_trust,
        options.tls_certificate,
        options.tls_key,
        not options.no_tls_hostname_check,
    )
    return PulsarSettings(service_url, topic, options.admin_url, login, options.max_entries, options.on_data_loss)


def split_source(source: str) -> tuple[str, str]:
    """Split `pulsar://HOST:PORT[,...]/TENANT/NAMESPACE/TOPIC` into service URL and topic; raises PipelineError."""
    found = _SOURCE.fullmatch(source)
    try:
        if found is not None:
            return found[1], str(topic_name(f"persistent://{found[2]}"))
    except ValueError:
        pass
    raise PipelineError(f"--source: got {without_user(source)!r}, expected pulsar://HOST:PORT/TENANT/NAMESPACE/TOPIC")


def without_user(url: str) -> str:
    """Return a URL as it may be shown: whatever is before its last @ may be a secret."""
    return re.sub(r"(://).*@", r"\1...@", url, flags=re.DOTALL)


def to_spark(settings: PulsarSettings) -> dict[str, str]:
    """Write settings as options of the data source."""
    return {"settings": json.dumps(asdict(settings))}


def from_spark(options: Mapping[str, str]) -> PulsarSettings:
    """Read the options of the data source."""
    given = json.loads(options["settings"])
    return PulsarSettings(**{**given, "login": Login(**given["login"])})
