"""Own a producer and a consumer that go on while a test does things to those between them, and what was lost."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import pulsar

from tests.support.patience import patient

_RECEIVE_MILLIS: Final = 1000
_PATIENCE_SECONDS: Final = patient(60.0)
# More than any other command of a connection has.
MESSAGE_BYTES: Final = 4_000


class Traffic:
    """Send numbered messages one by one, each until it is acknowledged, and receive them, each in a thread."""

    def __init__(self, client: pulsar.Client, topic: str) -> None:
        self._consumer = client.subscribe(topic, "traffic")
        self._producer = client.create_producer(topic, batching_enabled=False, send_timeout_millis=0)
        self._stop = threading.Event()
        self._given_up = False
        self._moved = threading.Condition()
        self._failures: list[BaseException] = []
        self._arrived: set[int] = set()
        self.sent = 0
        self.received: list[int] = []
        self._sender = threading.Thread(target=self._run, args=(self._send,))
        self._receiver = threading.Thread(target=self._run, args=(self._receive,))
        self._sender.start()
        self._receiver.start()

    def go_on(self, count: int = 20) -> None:
        """Wait until so many more messages have arrived."""
        with self._moved:
            target = len(self._arrived) + count
            enough = self._moved.wait_for(
                lambda: self._failures or len(self._arrived) >= target, timeout=_PATIENCE_SECONDS
            )
        assert not self._failures, self._failures
        assert enough, f"expected {target} messages, got {len(self._arrived)} of {self.sent}"

    def end(self) -> None:
        """Stop sending and receive the rest; every message that was acknowledged must have arrived, in order."""
        self._stop.set()
        self._join()
        assert not self._failures, self._failures
        assert not self._receiver.is_alive(), f"expected {self.sent} messages, got {len(self._arrived)}"
        # A producer that reconnects sends again what was not acknowledged to it: twice is allowed, lost is not.
        assert list(dict.fromkeys(self.received)) == list(range(self.sent))

    def give_up(self) -> None:
        """Stop at once, whatever is missing."""
        self._given_up = True
        self._stop.set()
        self._join()

    def _join(self) -> None:
        self._sender.join(_PATIENCE_SECONDS)
        self._receiver.join(_PATIENCE_SECONDS)
        self._given_up = True

    def _run(self, part: Callable[[], None]) -> None:
        try:
            part()
        except BaseException as error:
            with self._moved:
                self._failures.append(error)
                self._moved.notify_all()

    def _send(self) -> None:
        while not self._stop.is_set():
            self._producer.send(b"%0*d" % (MESSAGE_BYTES, self.sent))
            self.sent += 1

    def _receive(self) -> None:
        while not self._given_up and (self._sender.is_alive() or len(self._arrived) < self.sent):
            try:
                message = self._consumer.receive(timeout_millis=_RECEIVE_MILLIS)
            except pulsar.Timeout:
                continue
            with self._moved:
                self.received.append(int(message.data()))
                self._arrived.add(self.received[-1])
                self._moved.notify_all()
            self._consumer.acknowledge(message)


@contextmanager
def traffic(client: pulsar.Client, topic: str) -> Iterator[Traffic]:
    """Give traffic on a topic; at the end of the block nothing may be lost."""
    going = Traffic(client, topic)
    try:
        yield going
    except BaseException:
        going.give_up()
        raise
    going.end()
