"""A topic that keeps its events: made so by `init-topic`, and required of every topic that is read.

Source: without retention, and with the default policy for inactive topics, a broker deletes what no subscription holds
about a minute after the last producer has left; readers hold nothing.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from eventlog.topic_admin import AdminError, Keeping, Level, TopicAdmin, TopicName, topic_name
from pipeline.sources.pulsar.admin import topic_admin
from pipeline.sources.pulsar.errors import TopicError
from pipeline.sources.pulsar.options import PulsarSettings

_REFUSED: Final = (401, 403)


@dataclass(frozen=True, slots=True)
class WantedTopic:
    """The topic that `init-topic` makes; retention of -1 is forever, or of any size."""

    partitions: int
    retention_minutes: int
    retention_mb: int
    level: Level = "namespace"


def init_topic(settings: PulsarSettings, wanted: WantedTopic, say: Callable[[str], None]) -> None:
    """Create what is missing, have it keep messages, and read that back; raises TopicError."""
    name = topic_name(settings.topic)
    admin = topic_admin(settings)
    with _as_topic_errors(settings):
        if admin.create_namespace(name):
            say(f"created namespace {name.tenant}/{name.namespace}")
        _create_topic(admin, name, wanted.partitions, say)
        kept = admin.keep(name, wanted.retention_minutes, wanted.retention_mb, wanted.level)
    _require(settings, kept, "although it was set: a policy of the topic, or of the broker, goes before it")
    say(f"{name} keeps messages: {_shown(kept)}")


def require_keeping(settings: PulsarSettings) -> None:
    """Raise TopicError if messages of the topic go before they are read; only warn where that is not to be an error.

    Without the admin interface, or as a role that may not see policies, nobody knows.
    """
    if not settings.admin_url:
        return
    try:
        with _as_topic_errors(settings):
            kept = topic_admin(settings).keeping(topic_name(settings.topic))
            _require(settings, kept, "run `pulsar-proxy-pipeline init-topic` for it")
    except _RefusedError:
        _warn(f"{settings.topic}: this role may not see whether the topic keeps its messages")
    except TopicError as error:
        if settings.on_data_loss == "fail":
            raise
        _warn(str(error))


class _RefusedError(TopicError):
    """The role may not do this."""


@contextmanager
def _as_topic_errors(settings: PulsarSettings) -> Iterator[None]:
    try:
        yield
    except AdminError as error:
        if error.status in _REFUSED:
            raise _RefusedError(f"{settings.topic}: refused: {error}: log in with --auth as an administrator") from None
        raise TopicError(f"{settings.topic}: {error} (--admin-url)") from None


def _create_topic(admin: TopicAdmin, name: TopicName, partitions: int, say: Callable[[str], None]) -> None:
    there = admin.partitions(name)
    if there is None:
        admin.create(name, partitions)
        say(f"created {name} with {partitions} partitions" if partitions else f"created {name}, without partitions")
    elif bool(there) != bool(partitions):
        raise TopicError(
            f"{name} exists with {there} partitions, expected {partitions}:"
            f" say --partitions {there}, or take another topic"
        )
    elif there < partitions:
        admin.grow(name, partitions)
        say(f"{name} has {partitions} partitions now, had {there}")


def _require(settings: PulsarSettings, kept: Keeping, advice: str) -> None:
    if not kept.keeps:
        raise TopicError(f"{settings.topic} does not keep its messages: {'; '.join(kept.problems())}: {advice}")


def _shown(kept: Keeping) -> str:
    minutes, megabytes = kept.retention_minutes, kept.retention_mb
    time = "for ever" if minutes == -1 else f"for {minutes} min"
    size = "of any size" if megabytes == -1 else f"up to {megabytes} MB"
    return f"{time}, {size}, and stays when nobody uses it"


def _warn(text: str) -> None:
    print(f"warning: {text}", file=sys.stderr, flush=True)
