"""Give up answers whose bytes do not come from their brokers while others wait for the memory they hold.

The permit of a topic list or of a schema is as large as the answer's head says, whatever follows the head. So a broker
that is stuck, or in somebody else's hands, could hold memory by announcements until the answers' clocks end. Rules:
- An answer is judged by the time since its bytes last came at the least rate, as clients are that read
  (`topicListWriteMinBytesPerSecond`); without a least rate any byte will do.
- Only time in which the body is read counts: not a wait for memory, and no second in which the proxy stood still.
- An answer is given up only while somebody waits for memory that the answer may hold. In one look these are all answers
  of which nothing came, and the slowest of the others: a broker whose answers share a slow link loses one at a time.
- The question fails as one that its broker leaves unanswered, so that another broker is asked if there is one. The
  rest of the body is passed over when it comes.

The decisions have no I/O and no clock of their own; the owner calls `sweep` once a second.
"""

from collections.abc import Callable
from typing import Any, Final

from proxy.brokers.admitted_request import AdmittedRequest
from proxy.core.counters import Number
from proxy.core.errors import QuestionUnanswered
from proxy.net.write_watch import LONGEST_STEP_SECONDS

STILL_SECONDS: Final = 2.0


class _Arrival:
    __slots__ = ("at", "awaited", "size")

    def __init__(self, awaited: Callable[[], bool]) -> None:
        self.awaited = awaited
        # When the body last came at the least rate, and how much of it had come then; None: the body is not read.
        self.at = 0.0
        self.size: int | None = None

    def begin(self, now: float, size: int | None) -> None:
        self.at, self.size = now, size


class ArrivingAnswers:
    """The questions at brokers, and when the bytes of their answers last came fast enough.

    `kind` is what an answer is called in its error; `given_up` is called for each.
    """

    def __init__(self, kind: str, given_up: Number) -> None:
        self._kind = kind
        self._given_up = given_up
        self._watched: dict[AdmittedRequest[Any], _Arrival] = {}
        self._swept_at = 0.0

    def __len__(self) -> int:
        return len(self._watched)

    def watch(self, answer: AdmittedRequest[Any], awaited: Callable[[], bool]) -> None:
        """Watch `answer` until `forget`; `awaited` tells whether anybody waits for memory that it may hold."""
        self._watched[answer] = _Arrival(awaited)

    def forget(self, answer: AdmittedRequest[Any]) -> None:
        """Stop watching `answer`."""
        del self._watched[answer]

    def sweep(self, now: float, least_bytes_per_second: int) -> None:
        """End the questions whose answers have been too slow for STILL_SECONDS while others wait."""
        stood_still = now - self._swept_at > LONGEST_STEP_SECONDS
        self._swept_at = now
        slowest: tuple[float, AdmittedRequest[Any]] | None = None
        for answer, watched in self._watched.items():
            size, seconds = answer.arrived_bytes, now - watched.at
            if size is None or watched.size is None or stood_still:
                watched.begin(now, size)
                continue
            came = size - watched.size
            if came >= max(1.0, least_bytes_per_second * seconds):
                watched.begin(now, size)
            elif seconds >= STILL_SECONDS and watched.awaited():
                if not came:
                    self._give_up(answer)
                elif slowest is None or came / seconds < slowest[0]:
                    slowest = came / seconds, answer
        if slowest is not None:
            self._give_up(slowest[1])

    def _give_up(self, answer: AdmittedRequest[Any]) -> None:
        # The asking task takes the answer out of these books, in the next iteration of the loop.
        self._given_up.value += 1
        answer.failed(
            QuestionUnanswered(
                f"the broker sent a {self._kind} too slowly while others waited for its memory"
                " (topicListWriteMinBytesPerSecond)"
            )
        )
