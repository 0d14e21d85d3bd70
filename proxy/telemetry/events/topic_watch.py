"""Whether the topic of the event log keeps its events: asked at the start, and again now and then.

Rule: asking costs the proxy nothing but a thread for as long as it takes, which is bounded; a line is logged when the
answer changes, and the metric has the answer of now.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Final, Protocol

from eventlog.topic_admin import AdminError, Keeping, TopicAdmin, TopicName
from proxy.core.errors import CredentialsUnavailable
from proxy.core.log import Logger
from proxy.core.threads import in_thread
from proxy.telemetry.events.counters import EventLogCounters

__all__ = ["TopicWatch"]

SECONDS_WHILE_KEPT: Final = 300.0
SECONDS_UNTIL_KEPT: Final = 30.0
# For all admin services, two questions each.
ASK_SECONDS: Final = 60.0
ADMIN_TIMEOUT_SECONDS: Final = 15.0

Headers = Mapping[str, str]


class HeaderSource(Protocol):
    """Who knows the credentials for the admin API."""

    async def headers(self) -> Headers:
        """Give the headers; raises CredentialsUnavailable."""


class TopicWatch:
    """Asks `admin(headers)` whether `topic` keeps events; without `admin` nobody can be asked."""

    def __init__(
        self,
        topic: TopicName,
        admin: Callable[[Headers], TopicAdmin] | None,
        credentials: HeaderSource | None,
        counters: EventLogCounters,
        log: Logger,
    ) -> None:
        self._topic = topic
        self._admin = admin
        self._credentials = credentials
        self._counters = counters
        self._log = log
        self._told: object = None

    async def run(self) -> None:
        """Ask for ever."""
        while True:
            await self.look()
            await asyncio.sleep(SECONDS_WHILE_KEPT if self._counters.topic_keeps else SECONDS_UNTIL_KEPT)

    async def look(self) -> None:
        """Ask once, and tell what has changed."""
        try:
            found: Keeping | str = await self._ask()
        except (AdminError, CredentialsUnavailable, OSError) as error:
            # An OSError: certificates that cannot be read now, or TimeoutError.
            found = str(error) or f"no answer within {ASK_SECONDS:g} s"
        self._counters.topic_keeps = found.keeps if isinstance(found, Keeping) else None
        if found != self._told:
            self._told = found
            self._tell(found)

    async def _ask(self) -> Keeping:
        if self._admin is None:
            raise AdminError("no admin service is configured: set eventLogTopicWebServiceURL")
        headers = {} if self._credentials is None else await self._credentials.headers()
        # It is made in the thread, too: files of certificates are read for it.
        make = self._admin
        return await in_thread(lambda: make(headers).keeping(self._topic), "event log topic", ASK_SECONDS)

    def _tell(self, found: Keeping | str) -> None:
        topic, namespace = str(self._topic), f"{self._topic.tenant}/{self._topic.namespace}"
        change = f"retention and inactive-topic policy of {namespace} (pulsar-proxy-pipeline init-topic)"
        if isinstance(found, str):
            self._log.warning("not known whether the topic keeps events", topic=topic, detail=found, change=change)
        elif found.keeps:
            self._log.info("the topic keeps events", topic=topic)
        else:
            problems = "; ".join(found.problems())
            self._log.warning("the topic would lose events", topic=topic, detail=problems, change=change)
