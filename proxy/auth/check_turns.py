"""Order the checks of passwords: turns by site, network and user, and wrong guesses after all others.

Rules:
- Sites (`networks_of`) take turns, inside a site its networks do, and inside a network its users do. So guessers from
  one site delay other sites by one check at a time, and guesses of one user delay other users of that address likewise.
- Sites that sent no wrong password lately go first, so that many guessing sites delay nobody else either. Every fourth
  check is for the others: many clients may share one address. The same rule holds for the networks of a site and for
  the pairs of a network.
- A pair of network and user that gave a wrong password waits for `FailedGuesses.delayed_until`, has one check at a
  time, and only few of its clients may wait.
- A check that its client did not wait for counts as wrong: else guessers that leave early would never be delayed.
- Of more than `most_waiting` clients the newest leaves of the pair that has most, in the network that has most, in the
  site that has most. It may be the newcomer.

No I/O; the clock is the caller's. No method that changes the order has an `await`.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from limiter.clock import Clock, Timer
from limiter.fair_line import Entry, FairLine
from proxy.auth.failed_guesses import FailedGuesses, Pair
from proxy.auth.identity import AuthenticationFailed

MOST_WAITING: Final = 1000
MOST_WAITING_AFTER_FAILURE: Final = 8


class CheckTurns:
    """Gives `places` checks at once to the clients that wait for one."""

    def __init__(self, clock: Clock, places: int, most_waiting: int = MOST_WAITING) -> None:
        self._clock = clock
        self._free = places
        self._most_waiting = most_waiting
        self._guesses = FailedGuesses()
        # A pair is its own path; those who failed are in band 1.
        self._line: FairLine[Entry[tuple[Pair, asyncio.Future[bool]]]] = FairLine()
        # By pair: its checks under way, and the end of the delay that it waits for.
        self._checks: Counter[Pair] = Counter()
        self._delays: dict[Pair, Timer] = {}
        self.running = 0

    @property
    def waiting(self) -> int:
        """Return how many clients wait."""
        return len(self._line)

    @asynccontextmanager
    async def turn(self, client: str, user: str) -> AsyncIterator[None]:
        """Wait for the turn of a client (`address:port`) that names `user`; the body is the check of the password.

        A body that ends normally has proven the password; a body that raises has not, unless it was too busy to check.
        Raise AuthenticationFailed, busy, if too many wait.
        """
        pair = self._guesses.pair_of(client, user)
        await self._granted(pair)
        proven: bool | None = False
        try:
            yield
            proven = True
        except AuthenticationFailed as failure:
            proven = None if failure.busy else False
            raise
        finally:
            self._ended(pair, proven)

    # --- arrivals -----------------------------------------------------------------------------------

    async def _granted(self, pair: Pair) -> None:
        """Wait until a place is booked for the pair."""
        failed = self._guesses.pair_has_failed(pair, self._clock.time())
        if failed and self._line.waiting(pair) >= MOST_WAITING_AFTER_FAILURE:
            raise _too_many()
        turn: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        entry = self._line.push(pair, Entry((pair, turn)))
        self._settle(pair)
        self._make_room()
        self._serve()
        try:
            granted = await turn
        except BaseException:
            # Not only CancelledError: a coroutine that is dropped raises GeneratorExit here.
            if self._line.remove(entry):
                self._settle(pair)
            elif turn.done() and not turn.cancelled() and turn.result():
                # A place was booked for it in the same moment.
                self._ended(pair, None)
            raise
        if not granted:
            raise _too_many()

    def _make_room(self) -> None:
        """End the wait of a client if too many wait."""
        if self.waiting > self._most_waiting and (longest := self._line.longest()) is not None:
            self._line.remove(longest)
            pair, turn = longest.item
            self._settle(pair)
            if not turn.done():
                turn.set_result(False)

    # --- turns --------------------------------------------------------------------------------------

    def _serve(self) -> None:
        while self._free and self._line.head() is not None:
            pair, turn = self._line.pop().item
            # The waiter of a cancelled task stays here until the task runs.
            if not turn.done():
                self._free -= 1
                self.running += 1
                self._checks[pair] += 1
                turn.set_result(True)
            self._settle(pair)

    def _ended(self, pair: Pair, proven: bool | None) -> None:
        """Record the end of a check; `proven` is None if the check gave no verdict."""
        if proven:
            self._guesses.proven(pair)
        elif proven is False:
            self._guesses.failed(pair, self._clock.time())
        self._checks[pair] -= 1
        if not self._checks[pair]:
            del self._checks[pair]
        self._free += 1
        self.running -= 1
        self._settle(pair)
        self._serve()

    def _settle(self, pair: Pair) -> None:
        """Put a pair where it belongs now: behind others if it failed, aside while it is delayed or has a check."""
        guesses, line, now = self._guesses, self._line, self._clock.time()
        failed, due = guesses.pair_has_failed(pair, now), guesses.delayed_until(pair)
        line.set_band(pair[:1], guesses.network_has_failed(pair.site, now))
        line.set_band(pair[:2], guesses.network_has_failed(pair.network, now))
        line.set_band(pair, failed)
        line.set_parked(pair, parked=now < due or (failed and pair in self._checks))
        if (timer := self._delays.pop(pair, None)) is not None:
            timer.cancel()
        if now < due and line.waiting(pair):
            self._delays[pair] = self._clock.call_at(due, self._due, pair)

    def _due(self, pair: Pair) -> None:
        self._settle(pair)
        self._serve()


def _too_many() -> AuthenticationFailed:
    return AuthenticationFailed("too many passwords wait to be checked, try again", busy=True)
