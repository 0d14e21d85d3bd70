"""Give up topic lists whose bytes do not come from their brokers while others wait for the heap memory they hold.

The permit of a list is as large as the list's head says, whatever follows the head. So a broker that is stuck, or in
somebody else's hands, could hold memory by announcements until the answers' clocks end. Rules:
- A list is judged by the time since its bytes last came at the least rate, as clients are that read
  (`topicListWriteMinBytesPerSecond`); without a least rate any byte will do.
- Only time in which the body is read counts: not a wait for memory, and no second in which the proxy stood still.
- A list is given up only while somebody waits for memory that the list may hold. In one look these are all lists of
  which nothing came, and the slowest of the others: a broker whose lists share a slow link loses one at a time.
- The question fails as one that its broker leaves unanswered, so that another broker is asked if there is one. The
  rest of the body is passed over when it comes.

The decisions have no I/O and no clock of their own; the owner calls `sweep` once a second.
"""

from typing import Final, Protocol

from proxy.core.errors import QuestionUnanswered
from proxy.net.write_watch import LONGEST_STEP_SECONDS
from proxy.requests.counters import RequestCounters
from proxy.requests.topic_lists.broker_queues import BrokerQueue, BrokerQueues

STILL_SECONDS: Final = 2.0


class ArrivingAnswer(Protocol):
    """The answer to a question that is at a broker (`proxy.brokers.admitted_request.TopicListRequest`)."""

    @property
    def arrived_bytes(self) -> int | None:
        """Return how many bytes of the answer have come; None if the answer is not being read."""

    def failed(self, error: Exception) -> None:
        """End the question with `error`."""


class _Arrival:
    __slots__ = ("at", "queue", "size")

    def __init__(self, queue: BrokerQueue) -> None:
        self.queue = queue
        # When the body last came at the least rate, and how much of it had come then; None: the body is not read.
        self.at = 0.0
        self.size: int | None = None

    def begin(self, now: float, size: int | None) -> None:
        self.at, self.size = now, size


class ArrivingLists:
    """The questions at brokers, and when the bytes of their answers last came fast enough."""

    def __init__(self, queues: BrokerQueues, counters: RequestCounters) -> None:
        self._queues = queues
        self._counters = counters
        self._watched: dict[ArrivingAnswer, _Arrival] = {}
        self._swept_at = 0.0

    def __len__(self) -> int:
        return len(self._watched)

    def watch(self, answer: ArrivingAnswer, queue: BrokerQueue) -> None:
        """Watch `answer` of the broker of `queue`, until `forget`."""
        self._watched[answer] = _Arrival(queue)

    def forget(self, answer: ArrivingAnswer) -> None:
        """Stop watching `answer`."""
        del self._watched[answer]

    def sweep(self, now: float, least_bytes_per_second: int) -> None:
        """End the questions whose answers have been too slow for STILL_SECONDS while others wait."""
        stood_still = now - self._swept_at > LONGEST_STEP_SECONDS
        self._swept_at = now
        slowest: tuple[float, ArrivingAnswer] | None = None
        for answer, watched in self._watched.items():
            size, seconds = answer.arrived_bytes, now - watched.at
            if size is None or watched.size is None or stood_still:
                watched.begin(now, size)
                continue
            came = size - watched.size
            if came >= max(1.0, least_bytes_per_second * seconds):
                watched.begin(now, size)
            elif seconds >= STILL_SECONDS and self._queues.awaited(watched.queue):
                if not came:
                    self._give_up(answer)
                elif slowest is None or came / seconds < slowest[0]:
                    slowest = came / seconds, answer
        if slowest is not None:
            self._give_up(slowest[1])

    def _give_up(self, answer: ArrivingAnswer) -> None:
        # The asking task takes the answer out of these books, in the next iteration of the loop.
        self._counters.lists_given_up += 1
        answer.failed(
            QuestionUnanswered(
                "the broker sent a topic list too slowly while others waited for its memory"
                " (topicListWriteMinBytesPerSecond)"
            )
        )
