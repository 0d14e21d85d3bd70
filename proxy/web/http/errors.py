"""Errors that the proxy itself sends to clients of the web ports."""

import json
from typing import Final

from proxy.core.counters import Counters, counter_by
from proxy.core.errors import ProxyError

JSON: Final = "application/json"
TEXT: Final = "text/plain; charset=utf-8"
LONGEST_REASON: Final = 300
REFUSED: Final = counter_by("reason", "http_refused_requests", "Requests that the web ports refused, by reason.")
# The labels are classes of status codes, so their number is bounded.
ANSWERS: Final = counter_by(
    "status",
    "http_answers",
    "Answers on the web ports by class of status, without the proxy's own pages.",
    ("2xx", "3xx", "4xx", "5xx"),
)


def count_answer(counters: Counters, status: int) -> None:
    """Count an answer, forwarded or made by the proxy."""
    answers, kind = counters[ANSWERS], f"{status // 100}xx"
    if kind in answers:
        answers[kind] += 1


class HttpRefused(ProxyError):
    """A request is answered with `status`; `reason` is for its client: lower case, with the key to change.

    `kind` is a short name for the metrics; `detail` is for the log, which has the reason without one.
    """

    def __init__(
        self,
        status: int,
        reason: str,
        kind: str,
        headers: tuple[tuple[str, str], ...] = (),
        *,
        close: bool = False,
        detail: str = "",
    ) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason[:LONGEST_REASON]
        self.kind = kind
        self.headers = headers
        self.close = close
        self.detail = (detail or reason)[:LONGEST_REASON]

    @property
    def body(self) -> bytes:
        """Return the JSON body, in the form of the errors of Pulsar's admin interface."""
        return json.dumps({"reason": self.reason}).encode()


def retry_after(seconds: float) -> tuple[tuple[str, str], ...]:
    """Return the header Retry-After with whole seconds, at least one."""
    return (("Retry-After", str(max(1, round(seconds)))),)
