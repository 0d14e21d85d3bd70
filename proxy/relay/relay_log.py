"""Log lines about relayed connections: with `proxyLogLevel` 1 their commands, with 2 also the rates of their topics.

Rule: the log only observes. Any bytes of a peer and any failure here leave the relayed bytes as they are. Lines are
paced for the whole proxy; a line says how many commands since the last line it stands for. The topics of producers and
consumers are remembered until these close, for at most `MOST_NAMES` of a connection and `MOST_NAMES_IN_ALL` in all. No
line contains a payload or credentials.
"""

from collections.abc import Callable
from typing import Final

from protocol.command_head import CommandHead
from protocol.command_type import CommandType
from protocol.field_walker import check_fields
from protocol.pb import PulsarApi_pb2 as pb
from proxy.core.log import Logger
from proxy.relay.engine import Direction
from proxy.relay.topic_rates import MOST_TOPICS, TopicRates

COMMANDS: Final = 1
TOPICS: Final = 2
LEVELS: Final = (0, COMMANDS, TOPICS)
LINES_PER_SECOND: Final = 100
# The limit of remembered producers and consumers of a connection; messages of others are counted for no topic.
MOST_NAMES: Final = 1024
MOST_NAMES_IN_ALL: Final = 65_536
LONGEST_TOPIC: Final = 512
# Worst case of memory besides the heads of frames: names of four bytes a character, and their dict entries.
NAMES_BYTES: Final = (MOST_NAMES_IN_ALL + MOST_TOPICS) * (4 * LONGEST_TOPIC + 512)
# What the engine keeps of a relay: a head for each direction, and those that wait (`native/src/relay/tap.rs`).
HEAD_BYTES: Final = 4 * 1024
MOST_BYTES: Final = 8 * 1024
TAPPED_BYTES: Final = 2 * HEAD_BYTES + MOST_BYTES
_NAMES: Final = {command.value: command.name for command in CommandType}


class RelayLog:
    """The state that all logged relays share: the level of new relays, the log, its pace, and the rates."""

    def __init__(self, log: Logger, now: Callable[[], float], level: int) -> None:
        self._log = log
        self._now = now
        self._level = level
        self._second = 0
        self._lines = 0
        self._skipped_lines = 0
        self.names = 0
        self.rates = TopicRates(now())

    @property
    def level(self) -> int:
        """Return the level of relays that begin from now on."""
        return self._level

    def set_level(self, level: int) -> None:
        """Change the level of new relays; existing relays keep theirs. Below 2 the rates are cleared."""
        self._level = level
        if level < TOPICS:
            self.rates.clear()

    def tap(self, client: str, broker: str) -> "RelayTap | None":
        """Return the tap for a new relay; None at level 0."""
        return RelayTap(self, client, broker, self._level) if self._level else None

    def tick(self, now: float) -> None:
        """Update the rates; called once a second."""
        self.rates.tick(now)

    def write(self, tap: "RelayTap", direction: Direction, frame: CommandHead, topic: str | None) -> None:
        """Write a line about a command, if the pace allows one."""
        second = int(self._now())
        if second != self._second:
            self._second, self._lines = second, 0
        if self._lines >= LINES_PER_SECOND:
            self._skipped_lines += 1
            return
        self._lines += 1
        fields: dict[str, object] = {} if topic is None else {"topic": topic}
        if self._skipped_lines:
            fields["commands_since_last_line"], self._skipped_lines = self._skipped_lines, 0
        self._log.info(
            "relayed command",
            command=_NAMES.get(frame.kind, f"number {frame.kind}"),
            direction=direction.name.lower(),
            bytes=frame.frame_bytes,
            client=tap.client,
            broker=tap.broker,
            **fields,
        )

    def count(self, topic: str, frame: CommandHead, *, produced: bool) -> None:
        """Count the messages of a frame for its topic, while the level is 2."""
        if self._level >= TOPICS:
            add = self.rates.produced if produced else self.rates.consumed
            add(topic, frame.messages(), frame.payload_bytes, self._now())


class RelayTap:
    """Log the commands of one relay; `level` is the level at the relay's start."""

    __slots__ = ("_consumers", "_level", "_log", "_producers", "broker", "client")

    def __init__(self, log: RelayLog, client: str, broker: str, level: int) -> None:
        self.client = client
        self.broker = broker
        self._log = log
        self._level = level
        self._producers: dict[int, str] = {}
        self._consumers: dict[int, str] = {}

    def show(self, direction: Direction, head: bytes) -> None:
        """Write and count the command whose frame begins with `head`."""
        frame = CommandHead(head)
        topic = self._topic_of(frame, from_client=direction is Direction.TO_BROKER)
        if self._level >= TOPICS and topic is not None and frame.kind in (CommandType.SEND, CommandType.MESSAGE):
            self._log.count(topic, frame, produced=frame.kind == CommandType.SEND)
        self._log.write(self, direction, frame, topic)

    @property
    def names(self) -> int:
        """Return the number of producers and consumers whose topic is remembered."""
        return len(self._producers) + len(self._consumers)

    def close(self) -> None:
        """Remove all producers and consumers: the connection has ended."""
        self._log.names -= self.names
        self._producers.clear()
        self._consumers.clear()

    def _topic_of(self, frame: CommandHead, *, from_client: bool) -> str | None:
        """Return the topic of a command; remember the topics of PRODUCER and SUBSCRIBE until they are closed."""
        if frame.kind not in _TOPIC_COMMANDS or not frame.whole:
            return None
        try:
            check_fields(frame.command)
            command = pb.BaseCommand.FromString(frame.command)
        except Exception:  # protobuf's errors have no common base class; the broker judges these bytes
            return None
        match frame.kind:
            case CommandType.PRODUCER if from_client:
                return self._remember(self._producers, command.producer.producer_id, command.producer.topic)
            case CommandType.SUBSCRIBE if from_client:
                return self._remember(self._consumers, command.subscribe.consumer_id, command.subscribe.topic)
            case CommandType.SEND:
                return self._producers.get(command.send.producer_id)
            case CommandType.MESSAGE:
                return self._consumers.get(command.message.consumer_id)
            case CommandType.CLOSE_PRODUCER:
                return self._forget(self._producers, command.close_producer.producer_id)
            case CommandType.CLOSE_CONSUMER:
                return self._forget(self._consumers, command.close_consumer.consumer_id)
        return None

    def _remember(self, names: dict[int, str], number: int, topic: str) -> str:
        topic = topic[:LONGEST_TOPIC]
        if number in names:
            names[number] = topic
        elif self.names < MOST_NAMES and self._log.names < MOST_NAMES_IN_ALL:
            names[number] = topic
            self._log.names += 1
        return topic

    def _forget(self, names: dict[int, str], number: int) -> str | None:
        topic = names.pop(number, None)
        self._log.names -= topic is not None
        return topic


_TOPIC_COMMANDS: Final = frozenset(
    {
        CommandType.PRODUCER,
        CommandType.SUBSCRIBE,
        CommandType.SEND,
        CommandType.MESSAGE,
        CommandType.CLOSE_PRODUCER,
        CommandType.CLOSE_CONSUMER,
    }
)
