"""A part of a semaphore, with a line of its own: a permit that counts at several nodes is a permit of each of them.

Rules:
- Who needs a share and the whole takes the share first, and holds it while waiting for the whole. So who waits at one
  node also holds those it has passed: if others took of them meanwhile, it would wait for ever (`tests/model`).
- Who waits for a share that is full stops nobody who does not need it.
- The permit of a share may end before that of the whole; to end it waits for nothing.
"""

from math import ceil

from limiter.observer import WaitObserver
from limiter.semaphore import AsyncSemaphore

__all__ = ["Share"]


class Share(AsyncSemaphore):
    """As much as `part` of the limit of `whole`, 0: no limit; those who wait have the whole's bounds.

    They wait for the whole, so its observer is told. What is granted without a wait, the whole grants, too.
    """

    __slots__ = ("_whole", "part")

    def __init__(
        self, name: str, whole: AsyncSemaphore, part: float = 0, *, share_by_key: bool = False, kept_of: int = 0
    ) -> None:
        super().__init__(
            name, 0, max_queue=0, timeout_seconds=0, clock=whole._clock, observer=_waits_of(whole._counter.observer),
            share_by_key=share_by_key, kept_of=kept_of,
        )  # fmt: skip
        self._whole = whole
        self.part = part
        self.follow()

    def follow(self) -> None:
        """Take over what has changed of the whole, or of the part; permits that are held stay held."""
        whole = self._whole
        self.max_queue, self.timeout_seconds = whole.max_queue, whole.timeout_seconds
        self.set_limit(ceil(max(0, whole.limit) * self.part))


def _waits_of(observer: WaitObserver | None) -> WaitObserver | None:
    return observer and (lambda seconds, served: (seconds or not served) and observer(seconds, served))
