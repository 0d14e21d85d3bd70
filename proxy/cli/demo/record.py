"""What an embedded broker has seen: counts of everything, the commands themselves of the recent past only.

Rule: bounded, whatever arrives. A test waits here for what it expects, instead of for time to pass.
"""

import asyncio
from collections import Counter, deque
from typing import Final

from protocol.command_type import CommandType
from protocol.pb import PulsarApi_pb2 as pb

KEPT_COMMANDS: Final = 256
LARGEST_KEPT_BYTES: Final = 16 * 1024


class Record:
    """Count commands, topic-list questions and bytes."""

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
        """Count the topic-list requests that arrived."""
        return self.received[CommandType.GET_TOPICS_OF_NAMESPACE]

    def commands(self, command_type: CommandType) -> list[pb.BaseCommand]:
        """Give the recent commands of a type, oldest first."""
        return [command for command in self.recent if command.type == command_type]

    def command(self, command: pb.BaseCommand, size_bytes: int) -> None:
        """Note a command that arrived."""
        self.received[command.type] += 1
        if size_bytes <= LARGEST_KEPT_BYTES:
            self.recent.append(command)
        for entry in [entry for entry in self._waiting if self.received[entry[0]] >= entry[1]]:
            self._waiting.remove(entry)
            if not entry[2].done():
                entry[2].set_result(None)

    def question_opened(self) -> None:
        """Note that a topic-list question waits for its answer."""
        self.outstanding_topic_questions += 1
        self.max_outstanding_topic_questions = max(
            self.max_outstanding_topic_questions, self.outstanding_topic_questions
        )

    def question_closed(self) -> None:
        """Note that a topic-list answer was written, or that its connection ended."""
        self.outstanding_topic_questions -= 1

    async def seen(self, command_type: CommandType, count: int = 1) -> None:
        """Wait until `count` commands of a type have arrived since the start."""
        if self.received[command_type] < count:
            arrived: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append((command_type, count, arrived))
            await arrived
