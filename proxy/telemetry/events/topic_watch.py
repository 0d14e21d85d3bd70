"""Check at the start and at intervals whether the topic of the event log keeps its events.

Rule: a check costs a thread for a bounded time, and intervals are drawn at random, since a fleet asks one cluster. A
line is logged when the answer changes; the metric has the current answer.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from eventlog.topic_admin import AdminError, Keeping, TopicAdmin, TopicName
from proxy.core.errors import CredentialsUnavailable
from proxy.core.log import Logger
from proxy.core.tasks import spread
from proxy.core.threads import in_thread

__all__ = ["TopicWatch"]

SECONDS_WHILE_KEPT: Final = 300.0
SECONDS_UNTIL_KEPT: Final = 30.0
# Time limit for all admin services together, two requests each.
ASK_SECONDS: Final = 60.0
ADMIN_TIMEOUT_SECONDS: Final = 15.0

Headers = Mapping[str, str]


class TopicWatch:
    """Asks `admin(headers)` whether `topic` keeps events; without `admin` the answer is "not known".

    `credentials` returns the headers with credentials for that, or raises CredentialsUnavailable.
    """

    def __init__(
        self,
        topic: TopicName,
        admin: Callable[[Headers], TopicAdmin] | None,
        credentials: Callable[[], Awaitable[Headers]] | None,
        log: Logger,
    ) -> None:
        self._topic = topic
        self._admin = admin
        self._credentials = credentials
        # None: not known.
        self.topic_keeps: bool | None = None
        self._log = log
        self._last_logged: object = None

    async def run(self) -> None:
        """Check at intervals until cancelled."""
        while True:
            await self.look()
            await asyncio.sleep(spread(SECONDS_WHILE_KEPT if self.topic_keeps else SECONDS_UNTIL_KEPT))

    async def look(self) -> None:
        """Check once, and log a change."""
        try:
            found: Keeping | str = await self._ask()
        except (AdminError, CredentialsUnavailable, OSError) as error:
            # OSError: unreadable certificates, or TimeoutError.
            found = str(error)
        self.topic_keeps = found.keeps if isinstance(found, Keeping) else None
        if found != self._last_logged:
            self._last_logged = found
            self._log_change(found)

    async def _ask(self) -> Keeping:
        if self._admin is None:
            raise AdminError("no admin service: brokerWebServiceURL is empty, or eventLogTopicServiceURL names others")
        headers = {} if self._credentials is None else await self._credentials()
        # The thread makes the client, too: that reads certificate files.
        make = self._admin
        return await in_thread(lambda: make(headers).keeping(self._topic), "event log topic", ASK_SECONDS)

    def _log_change(self, found: Keeping | str) -> None:
        topic, namespace = str(self._topic), f"{self._topic.tenant}/{self._topic.namespace}"
        change = f"retention and inactive-topic policy of {namespace} (pulsar-admin namespaces)"
        if isinstance(found, str):
            self._log.warning("not known whether the topic keeps events", topic=topic, detail=found, change=change)
        elif found.keeps:
            self._log.info("the topic keeps events", topic=topic)
        else:
            problems = "; ".join(found.problems())
            self._log.warning("the topic would lose events", topic=topic, detail=problems, change=change)
