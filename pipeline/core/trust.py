"""Whether a calibration is enough to advise by: how far off, out of how many requests, and how much of it is guessed.

Rule: a small error out of nothing is no reason to trust. Pure.
"""

import math
from dataclasses import dataclass

from pipeline.core.calibration import Judged
from pipeline.core.errors import ExitCode, PipelineError

__all__ = ["Trust"]


@dataclass(frozen=True, slots=True)
class Trust:
    """The largest error, the largest share of imputed requests, and the least number of requests compared.

    Raises PipelineError for what cannot be meant.
    """

    max_error: float
    max_imputed: float
    min_requests: int

    def __post_init__(self) -> None:
        """Refuse bounds that bound nothing."""
        if not 0 <= self.max_error < math.inf:
            raise PipelineError(f"--max-error: got {self.max_error}, expected a number from 0")
        if not 0 <= self.max_imputed <= 1:
            raise PipelineError(f"--max-imputed: got {self.max_imputed}, expected a share from 0 to 1")
        if self.min_requests < 1:
            raise PipelineError(f"--min-requests: got {self.min_requests}, expected 1 or more")

    def in_all(self, judged: Judged | None, unproven_percent: int = 100) -> Judged:
        """Give what is said of all proxies as it is; raises PipelineError, exit code 3, if it cannot be trusted.

        `unproven_percent` is the part of direct memory that clients had which have not shown that they read.
        """
        if judged is None:
            why = "the replay was not held against what was recorded, expected it to be: run the job whatif"
        else:
            why = self._doubt(judged, unproven_percent)
        if judged is None or why:
            raise PipelineError(f"no advice: {why}; see the table calibration", ExitCode.CALIBRATION)
        return judged

    def _doubt(self, judged: Judged, unproven_percent: int) -> str:
        row = judged.row
        if row["requests"] < self.min_requests:
            return (
                f"{row['requests']} requests could be compared with what was recorded, expected at least"
                f" {self.min_requests} (--min-requests)"
            )
        if row["imputed_share"] > self.max_imputed:
            return (
                f"{100 * row['imputed_share']:.1f} % of the requests have sizes or times of others, expected at most"
                f" {100 * self.max_imputed:g} % (--max-imputed); raise the limits and record again"
            )
        # Turned round, so that what is no number is not trusted either.
        if not judged.error <= self.max_error:
            return (
                f"the replay of the recorded limits has an error of {judged.error:.3f}, expected at most"
                f" {self.max_error} (--max-error): outcomes differ by {judged.outcome_error:.3f}, the p99 of waits by"
                f" {judged.wait_error:.3f} ({judged.waits}), single proxies by {judged.mean_error:.3f} on average"
                f"{_share(unproven_percent)}"
            )
        return ""


def _share(unproven_percent: int) -> str:
    if unproven_percent == 100:
        return ""
    return (
        f"; clients that have not shown that they read had {unproven_percent} % of direct memory"
        " (topicListUnprovenReadersMemoryPercent), and how they take turns for it is not replayed: raise the direct"
        " limit, so that fewer wait, and record again"
    )
