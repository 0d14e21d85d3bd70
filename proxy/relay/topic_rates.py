"""Messages and bytes per second of the topics that relayed clients use, while `proxyLogLevel` is 2.

Rule: a table of bounded size. A topic is in it while messages of it pass; the one that was silent for longest makes
room for a new one, and who is silent for ten minutes leaves. It holds no producer, no consumer and no connection, so
nothing stays behind when these go (upstream's static maps did: apache/pulsar #8402, #25138, #25142).
"""

from collections import OrderedDict
from collections.abc import Mapping
from typing import Final

MOST_TOPICS: Final = 4096
# One rate is that of a whole window; in between the last one stands.
WINDOW_SECONDS: Final = 10.0
IDLE_SECONDS: Final = 600.0


class _Topic:
    """What passed in the window under way, and the rates of the last whole one."""

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
    """The table; `now` is always the loop's time in seconds."""

    def __init__(self, now: float) -> None:
        self._topics: OrderedDict[str, _Topic] = OrderedDict()
        self._window_began = now

    def __len__(self) -> int:
        return len(self._topics)

    def produced(self, topic: str, messages: int, size_bytes: int, now: float) -> None:
        """Count what a client sent."""
        found = self._touch(topic, now)
        found.messages_in += messages
        found.bytes_in += size_bytes

    def consumed(self, topic: str, messages: int, size_bytes: int, now: float) -> None:
        """Count what a broker sent to a client."""
        found = self._touch(topic, now)
        found.messages_out += messages
        found.bytes_out += size_bytes

    def tick(self, now: float) -> None:
        """End the window if it is over, and forget topics that are silent for long."""
        seconds = now - self._window_began
        if seconds < WINDOW_SECONDS:
            return
        self._window_began = now
        for topic in self._topics.values():
            topic.end_window(seconds)
        while self._topics and now - next(iter(self._topics.values())).last_seen >= IDLE_SECONDS:
            self._topics.popitem(last=False)

    def clear(self) -> None:
        """Forget everything."""
        self._topics.clear()

    def document(self) -> Mapping[str, Mapping[str, float]]:
        """Give the rates by topic, with the fields of upstream's TopicStats."""
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
