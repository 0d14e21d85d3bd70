"""A topic as its cluster's admin interface tells it: partitions, ledgers, ends, and whether it keeps its messages.

Rule: nothing here changes anything, or makes a topic that was not there. An answer that another try will not change is
an error at once; an interface that is away, or busy, is asked again until `patience_seconds` are over. Credentials go
where the admin URL says, and along redirects between brokers (that is how Pulsar finds the owner of a topic), but never
from https to http.
"""

import ssl
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from http.client import HTTPException
from typing import Any, Final, TypeVar

from eventlog.topic_admin import AdminError, TopicAdmin, topic_name
from pipeline.sources.pulsar.errors import TopicError
from pipeline.sources.pulsar.login import Credentials
from pipeline.sources.pulsar.offsets import NOWHERE, Ledger, PartitionState, Position
from pipeline.sources.pulsar.options import PulsarSettings

PATIENCE_SECONDS: Final = 30.0
_PAUSE_SECONDS: Final = 0.5
_REFUSED: Final = (401, 403)
_NOT_FOUND: Final = 404
_LATER: Final = frozenset({408, 429, 500, 502, 503, 504})
# More is no statistics of a topic: 100,000 ledgers have some 10 MB.
_LONGEST_ANSWER_BYTES: Final = 64 << 20

_Answer = TypeVar("_Answer")


class Cluster:
    """Ask about the topic of the settings; each question raises TopicError."""

    def __init__(
        self,
        settings: PulsarSettings,
        patience_seconds: float = PATIENCE_SECONDS,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._settings = settings
        self._patience_seconds = patience_seconds
        self._clock = clock
        self._sleep = sleep
        credentials, url = Credentials(settings.login), settings.admin_url
        self._admin = TopicAdmin(
            (url,),
            credentials.headers,
            credentials.tls() if url.startswith("https:") else None,
            # A try may take half of the patience.
            timeout_seconds=patience_seconds / 2,
            largest_answer_bytes=_LONGEST_ANSWER_BYTES,
        )

    def states(self) -> dict[str, PartitionState]:
        """Return the state of every partition that the cluster has statistics of."""
        topic = self._settings.topic
        path = topic_name(topic).path
        try:
            if not self._get(f"{path}/partitions")["partitions"]:
                return {topic: state_of(topic, self._get(f"{path}/internalStats"))}
            every = self._get(f"{path}/partitioned-internalStats")["partitions"]
        except TopicError as error:
            if error.status != _NOT_FOUND:
                raise
            raise TopicError(
                f"{topic} does not exist: create it (pulsar-admin topics create-partitioned-topic)"
            ) from None
        return {name: state_of(name, stats) for name, stats in every.items()}

    def require_keeping(self) -> None:
        """Raise TopicError if messages go before they are read; only warn if nobody may see, or losses are no error.

        Source: without retention, and with the default policy for inactive topics, a broker deletes what no
        subscription holds about a minute after the last producer has left; readers hold nothing.
        """
        topic = self._settings.topic
        try:
            kept = self._ask(partial(self._admin.keeping, topic_name(topic)))
        except TopicError as error:
            if error.status not in _REFUSED:
                raise
            warn(f"{topic}: this role may not see whether the topic keeps its messages")
            return
        if kept.keeps:
            return
        text = f"{topic} does not keep its messages: {'; '.join(kept.problems())}: set them (pulsar-admin namespaces)"
        if self._settings.on_data_loss == "fail":
            raise TopicError(text)
        warn(text)

    def _get(self, path: str) -> Any:
        return self._ask(partial(self._admin.get, path))

    def _ask(self, question: Callable[[], _Answer]) -> _Answer:
        until = self._clock() + self._patience_seconds / 2
        while True:
            try:
                return question()
            except AdminError as error:
                if not _helps_to_wait(error) or self._clock() + _PAUSE_SECONDS > until:
                    raise _told(error) from None
            self._sleep(_PAUSE_SECONDS)


def _helps_to_wait(error: AdminError) -> bool:
    if error.status:
        return error.status in _LATER
    away = isinstance(error.reason, OSError | HTTPException)
    return away and not isinstance(error.reason, ssl.SSLCertVerificationError)


def _told(error: AdminError) -> TopicError:
    text = " ".join(str(error).split())
    if error.status in _REFUSED:
        text += ": log in as a role that may ask for the topic's statistics (--auth-file)"
    else:
        text += " (--tls-trust)" if isinstance(error.reason, ssl.SSLError) else " (--admin-url)"
    return TopicError(text, error.status)


def warn(text: str) -> None:
    """Warn on standard error."""
    print(f"warning: {text}", file=sys.stderr, flush=True)


def state_of(name: str, stats: Mapping[str, Any]) -> PartitionState:
    """Read what the admin interface says of a partition (`internalStats`)."""
    last = Position(*map(int, stats["lastConfirmedEntry"].split(":")))
    ledgers = []
    for ledger in stats["ledgers"]:
        # The one that is written to says 0 until it is closed.
        entries = last.entry + 1 if ledger["ledgerId"] == last.ledger else ledger["entries"]
        ledgers.append(Ledger(ledger["ledgerId"], 0 if ledger["ledgerId"] > last.ledger else entries))
    ledgers.sort()
    filled = [Position(ledger.id, ledger.entries - 1) for ledger in ledgers if ledger.entries]
    return PartitionState(name, tuple(ledgers), last if last.entry >= 0 else (filled or [NOWHERE])[-1])
