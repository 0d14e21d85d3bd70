"""Messages and bytes per second of the topics that relayed clients use, while `proxyLogLevel` is 2.

Rule: the table has a bounded size. A topic stays in it while its messages pass: a new topic replaces the topic that was
silent for longest, and after ten minutes of silence a topic is removed. No producer, consumer or connection is in the
table, so nothing leaks when these end (upstream's static maps leaked: apache/pulsar #8402, #25138, #25142).
"""

from collections import OrderedDict
from collections.abc import Mapping
from typing import Final

MOST_TOPICS: Final = 4096
# Rates are those of the last complete window.
WINDOW_SECONDS: Final = 10.0
IDLE_SECONDS: Final = 600.0


class _Topic:
    """The counts of the current window of a topic, and the rates of the last complete window."""

    __slots__ = ("bytes_in", "bytes_out", "last_seen", "messages_in", "messages_out", "rates")

    def __init__(self, now: float) -> None:
        self.last_seen = now
        self.messages_in = self.bytes_in = self.messages_out = self.bytes_out = 0
        self.rates = (0.0, 0.0, 0.0, 0.0)

    def end_window(self, seconds: float) -> None:
        counted = (self.messages_in, self.bytes_in, self.messages_out, self.bytes_out)
        self.rates = tuple(count / seconds for count in counted)  # type: ignore[assignment]
        self.messages_in = self.bytes_in = self.messages_out = self.bytes_out = 0


class TopicRates:
    """The rates of all topics; `now` is always the loop's time in seconds."""

    def __init__(self, now: float) -> None:
        self._topics: OrderedDict[str, _Topic] = OrderedDict()
        self._window_began = now

    def __len__(self) -> int:
        return len(self._topics)

    def produced(self, topic: str, messages: int, size_bytes: int, now: float) -> None:
        """Count messages that a client sent."""
        found = self._touch(topic, now)
        found.messages_in += messages
        found.bytes_in += size_bytes

    def consumed(self, topic: str, messages: int, size_bytes: int, now: float) -> None:
        """Count messages that a broker sent to a client."""
        found = self._touch(topic, now)
        found.messages_out += messages
        found.bytes_out += size_bytes

    def tick(self, now: float) -> None:
        """End the window when it is over, and remove topics that have been silent for long."""
        seconds = now - self._window_began
        if seconds < WINDOW_SECONDS:
            return
        self._window_began = now
        for topic in self._topics.values():
            topic.end_window(seconds)
        while self._topics and now - next(iter(self._topics.values())).last_seen >= IDLE_SECONDS:
            self._topics.popitem(last=False)

    def clear(self) -> None:
        """Remove all topics."""
        self._topics.clear()

    def document(self) -> Mapping[str, Mapping[str, float]]:
        """Return the rates by topic, with the fields of upstream's TopicStats."""
        names = ("msgRateIn", "msgByteIn", "msgRateOut", "msgByteOut")
        return {name: dict(zip(names, topic.rates, strict=True)) for name, topic in self._topics.items()}

    def _touch(self, name: str, now: float) -> _Topic:
        topic = self._topics.get(name)
        if topic is None:
            if len(self._topics) >= MOST_TOPICS:
                self._topics.popitem(last=False)
            topic = self._topics[name] = _Topic(now)
        else:
            self._topics.move_to_end(name)
            topic.last_seen = now
        return topic
