"""Errors between a topic and a job, and how such an error gets back from Spark's processes.

Rule: these are raised in processes of Spark's own, of which only the text of a traceback comes back; `explain` finds
the error in it. So their messages are one line.
"""

import re
from typing import Final

from pipeline.core.errors import ExitCode, PipelineError


class DataLossError(PipelineError):
    """Events that were to be read are gone."""

    def __init__(self, message: str) -> None:
        super().__init__(message, ExitCode.DATA_LOSS)


class TopicError(PipelineError):
    """A topic or its cluster cannot be reached, refuses (`status`, as of HTTP), or does not answer in time."""

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message, ExitCode.SOURCE)
        self.status = status


_KINDS: Final = {kind.__name__: kind for kind in (DataLossError, TopicError)}
_IN_TRACEBACK: Final = re.compile(rf"^.*\b{re.escape(__name__)}\.({'|'.join(_KINDS)}): (.+)$", re.MULTILINE)


def explain(error: BaseException) -> PipelineError | None:
    """Return the error of ours that made a query of Spark fail; None if it was another."""
    if isinstance(error, PipelineError):
        return error
    found = _IN_TRACEBACK.findall(str(error))
    if not found:
        return None
    kind, message = found[-1]
    return _KINDS[kind](message.strip())
