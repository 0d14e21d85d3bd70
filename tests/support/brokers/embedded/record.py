"""The record of an embedded broker: counts of all commands, and the most recent commands themselves.

Rule: the record is bounded, whatever arrives. A test waits here for a command instead of for time to pass.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Callable
from typing import Final

from protocol.command_type import CommandType
from protocol.pb import PulsarApi_pb2 as pb

KEPT_COMMANDS: Final = 256
LARGEST_KEPT_BYTES: Final = 16 * 1024


class Record:
    """Counts commands, topic-list requests in progress, and bytes."""

    def __init__(self) -> None:
        self.received: Counter[int] = Counter()
        self.recent: deque[pb.BaseCommand] = deque(maxlen=KEPT_COMMANDS)
        self.connections_accepted = 0
        self.outstanding_topic_questions = 0
        self.max_outstanding_topic_questions = 0
        self.received_bytes = 0
        self.sent_bytes = 0
        self._waiting: list[tuple[CommandType, int, asyncio.Future[None]]] = []

    @property
    def topic_questions(self) -> int:
        """The number of topic-list requests that arrived."""
        return self.received[CommandType.GET_TOPICS_OF_NAMESPACE]

    def commands(self, command_type: CommandType) -> list[pb.BaseCommand]:
        """Return the recent commands of a type, oldest first."""
        return [command for command in self.recent if command.type == command_type]

    def command(self, command: pb.BaseCommand, size_bytes: int) -> None:
        """Called when a command arrives: count it, keep it if it is small, and wake the tests that wait for it."""
        self.received[command.type] += 1
        if size_bytes <= LARGEST_KEPT_BYTES:
            self.recent.append(command)
        for entry in [entry for entry in self._waiting if self.received[entry[0]] >= entry[1]]:
            self._waiting.remove(entry)
            if not entry[2].done():
                entry[2].set_result(None)

    def question_opened(self) -> Callable[[], None]:
        """Called when a topic-list request arrives; return what to call when its answer ends, at least once."""
        self.outstanding_topic_questions += 1
        self.max_outstanding_topic_questions = max(
            self.max_outstanding_topic_questions, self.outstanding_topic_questions
        )
        counted = 1

        def close() -> None:
            nonlocal counted
            self.outstanding_topic_questions -= counted
            counted = 0

        return close

    async def seen(self, command_type: CommandType, count: int = 1) -> None:
        """Wait until `count` commands of a type have arrived since the start."""
        if self.received[command_type] < count:
            arrived: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append((command_type, count, arrived))
            await arrived
