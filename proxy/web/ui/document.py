"""The document that the page for people shows, from the document of `top` and the limiters.

Rule: viewers share one document a second, and its size is bounded. Secrets are hidden where the configuration is made.
"""

from collections.abc import Iterable, Mapping
from itertools import chain, islice
from typing import Any, Final

from limiter.dual import AsyncDualMemoryLimiter
from limiter.semaphore import AsyncSemaphore
from proxy.auth.fairness_key import DisplayNames
from proxy.web.ui.minutes import Minutes

HOLDERS: Final = 8
# The first of each line, and of all lines.
WAITERS: Final = 8
MOST_WAITERS: Final = 24
LONGEST_NAME: Final = 200
# Parts of the document of `top` that the page shows.
_OF_TOP: Final = (
    "proxy", "memory", "limiters", "clients", "brokers", "lists", "refusals", "relays", "restart_needed",
)  # fmt: skip


def ui_document(
    top: Mapping[str, Any],
    budget_parts: Mapping[str, int],
    limiter: AsyncDualMemoryLimiter,
    lines: Iterable[AsyncSemaphore],
    names: DisplayNames,
    minutes: Minutes,
) -> Mapping[str, object]:
    """Return the numbers and names of this moment as JSON values; lists wait for memory in `lines`."""
    return {
        **{name: top[name] for name in _OF_TOP},
        "budget_parts": dict(budget_parts),
        "holders": {each.name: _holders(each, names) for each in (limiter.heap, limiter.direct)},
        "waiters": list(islice(chain.from_iterable(_waiters(each, names) for each in lines), MOST_WAITERS)),
        "minutes": minutes.shown(),
    }


def _holders(semaphore: AsyncSemaphore, names: DisplayNames) -> list[Mapping[str, object]]:
    return [{"owner": _name(key, names), "held_bytes": held} for key, held in semaphore.top_holders(HOLDERS)]


def _waiters(semaphore: AsyncSemaphore, names: DisplayNames) -> list[Mapping[str, object]]:
    found = [waiter for some in semaphore.waiters(WAITERS, WAITERS) for waiter in some]
    return [
        {
            "line": semaphore.name,
            "owner": _name(waiter.key, names),
            "namespace": "" if waiter.about is None else str(waiter.about)[:LONGEST_NAME],
            "asked_bytes": waiter.size,
            "waited_seconds": round(waiter.waited_seconds, 2),
        }
        for waiter in found[:WAITERS]
    ]


def _name(key: object, names: DisplayNames) -> str:
    return "" if key is None else names(key)[:LONGEST_NAME]
