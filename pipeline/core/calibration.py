"""How far the replay is off, from the rows of the table `calibration` and the wait that is promised. Pure.

Rule: two figures are compared, and the larger is the error. Outcomes: the largest difference between the shares of
answered, refused and cancelled requests. Waits: the difference between the 99th percentiles of answered requests, the
recorded ones without the machine's lateness (`pipeline.replay.calibrate`), by the wait that is promised, or by the
recorded one if that is longer. The promise is what an error can break: 230 ms for 178 ms matter where 250 ms are
promised, and not where a second is. So the table holds no error of waits: every job with a promise weighs them here.

An error of one proxy must not make good the opposite error of another: the error of all together is no less than the
mean of the proxies' own, each at most 1 and weighed by its requests. So a small proxy alone decides nothing.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pipeline.core.buckets import PER_OCTAVE
from pipeline.core.errors import Calm, ExitCode, PipelineError

# The row for all proxies together.
ALL: Final = ""
# Lateness of the machine: less than a turn of the event loop is not worth a word.
LATE_US: Final = 10_000
PROMISED_MS: Final = 250.0
# Both sides come from buckets: neighbours are the same as far as anybody can tell.
_SAME: Final = 2 ** (1.01 / PER_OCTAVE)
# Where fewer waited for memory, the p99 is that of requests that did not.
LEAST_WAITED: Final = 0.01
# Requests more or less that are nobody's concern.
_FEW: Final = 3
_ENDINGS: Final = ("ok", "refused", "cancelled")
Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Judged:
    """A row of the table, and the wait that is promised; of all, `mean_error` is that of the proxies' own errors."""

    row: Row
    promised_us: float
    mean_error: float = 0.0

    @property
    def error(self) -> float:
        """Return the largest of the errors; NaN if one of them is no number, and nobody trusts that."""
        errors = self.outcome_error, self.wait_error, self.mean_error
        return math.nan if any(map(math.isnan, errors)) else max(errors)

    @property
    def outcome_error(self) -> float:
        return float(self.row["outcome_error"])

    @property
    def wait_error(self) -> float:
        """Return the difference between the 99th percentiles as a share of `whole_us`; infinite if that is 0."""
        if not self._differ:
            return 0.0
        return abs(self.simulated_us - self.recorded_us) / self.whole_us if self.whole_us else math.inf

    @property
    def recorded_us(self) -> float:
        """Return the 99th percentile of the recorded waits, without the machine's lateness."""
        return float(self.row["limiter_p99_us"])

    @property
    def simulated_us(self) -> float:
        return float(self.row["simulated_p99_us"])

    @property
    def whole_us(self) -> float:
        """Return what an error of waits is a share of."""
        return max(self.recorded_us, self.promised_us)

    @property
    def waits(self) -> str:
        """Explain what an error of waits is a share of, how far apart both are, and whether the promise cares."""
        whose = "promised" if self.whole_us == self.promised_us else "recorded"
        said = f"weighed by the {whose} {self.whole_us / 1000:.0f} ms"
        if not self._both_answered:
            return f"{said}; of one side there are none"
        if not self._differ:
            return f"{said}; no difference that buckets show"
        longest = max(self.recorded_us, self.simulated_us)
        far = ", and both are far below the promise" if longest <= self.promised_us / 2 else ""
        if not (self.recorded_us and self.simulated_us):
            return f"{said}; one of both is nothing{far}"
        return f"{said}; the replay has {self.simulated_us / self.recorded_us:.2f} times the recorded one{far}"

    @property
    def refusals(self) -> str:
        """Report how many requests were refused on both sides; empty if the numbers are the same but for a few."""
        recorded, simulated = int(self.row["recorded_refused"]), int(self.row["simulated_refused"])
        if abs(recorded - simulated) <= _FEW:
            return ""
        off = f"missed {recorded - simulated}" if simulated < recorded else f"has {simulated - recorded} too many"
        return f"Under the recorded limits {recorded} requests were refused, {simulated} in the replay: it {off}"

    @property
    def _both_answered(self) -> bool:
        return bool(self.row["recorded_ok"] and self.row["simulated_ok"])

    @property
    def _differ(self) -> bool:
        one, other = self.recorded_us, self.simulated_us
        same = one == other or (one and other and 1 / _SAME <= other / one <= _SAME)
        return self._both_answered and not same


@dataclass(frozen=True, slots=True)
class Trust:
    """The largest error, the largest share of imputed requests, and the least number of requests compared.

    A small error out of nothing is no reason to trust. Raises PipelineError for what cannot be meant.
    """

    max_error: float
    max_imputed: float
    min_requests: int

    def __post_init__(self) -> None:
        if not 0 <= self.max_error < math.inf:
            raise PipelineError(f"--max-error: got {self.max_error}, expected a number from 0")
        if not 0 <= self.max_imputed <= 1:
            raise PipelineError(f"--max-imputed: got {self.max_imputed}, expected a share from 0 to 1")
        if self.min_requests < 1:
            raise PipelineError(f"--min-requests: got {self.min_requests}, expected 1 or more")

    def in_all(self, judged: Judged | None, waited: int, not_replayed: Sequence[str] = ()) -> Judged:
        """Return the judgement of all proxies unchanged; raises PipelineError, exit code 3, if it cannot be trusted.

        `waited` requests waited for memory, or were refused it; `not_replayed` are settings without which rules were in
        force that the replay does not know.
        """
        if judged is not None and waited < LEAST_WAITED * judged.row["requests"]:
            # Lists that are too large are refused without a wait.
            raise (PipelineError if judged.row["recorded_refused"] else Calm)(
                f"no advice: nobody waited: {waited} of {judged.row['requests']} requests had to wait for memory,"
                f" expected at least {100 * LEAST_WAITED:g} %, since a calm recording does not show what smaller limits"
                " do: record a storm, or with smaller limits",
                ExitCode.CALIBRATION,
            )
        why = self._doubt(judged, not_replayed)
        if judged is None or why:
            raise PipelineError(f"no advice: {why}; see the table calibration", ExitCode.CALIBRATION)
        return judged

    def _doubt(self, judged: Judged | None, not_replayed: Sequence[str]) -> str:
        if judged is None:
            return "the replay was not held against what was recorded, expected it to be: run the job whatif"
        row = judged.row
        if row["requests"] < self.min_requests:
            return (
                f"{row['requests']} requests could be compared with what was recorded, expected at least"
                f" {self.min_requests} (--min-requests): record for longer"
            )
        if row["imputed_share"] > self.max_imputed:
            return (
                f"{100 * row['imputed_share']:.1f} % of the requests have sizes or times of others, expected at most"
                f" {100 * self.max_imputed:g} % (--max-imputed): raise the limits and record again"
            )
        # Turned round, so that what is no number is not trusted either.
        if not judged.error <= self.max_error:
            return (
                f"the replay of the recorded limits has an error of {judged.error:.3f}, expected at most"
                f" {self.max_error} (--max-error): outcomes differ by {judged.outcome_error:.3f}, the p99 of waits by"
                f" {judged.wait_error:.3f} ({judged.waits}), single proxies by {judged.mean_error:.3f} on average;"
                f" what may help: {_next_step(judged, not_replayed)}"
            )
        return ""


def _next_step(judged: Judged, not_replayed: Sequence[str]) -> str:
    late_us = judged.row["late_p99_us"]
    if not_replayed:
        return f"record again with {' and '.join(not_replayed)}, since the rules of other values are not replayed"
    if late_us >= LATE_US and late_us > judged.recorded_us:
        return f"record on a machine that is less busy: this one was late by {late_us / 1000:.0f} ms"
    if judged.outcome_error <= judged.wait_error and judged.whole_us == judged.promised_us:
        return f"promise more than {judged.promised_us / 1000:g} ms (--p99-wait-ms), if clients may wait longer"
    return "record again with more memory, so that fewer wait and fewer are refused"


def judge(rows: Iterable[Row], promised_us: float) -> dict[str, Judged]:
    """Return the rows of the table by proxy, weighed by the wait that is promised; `ALL` is all proxies together."""
    judged = {str(row["proxy_id"]): Judged(row, promised_us) for row in rows}
    if ALL not in judged:
        return judged
    each = [one for name, one in judged.items() if name != ALL]
    off = sum(one.row["requests"] * min(1.0, one.error) for one in each)
    mean = off / max(1, sum(one.row["requests"] for one in each))
    return judged | {ALL: Judged(judged[ALL].row, promised_us, mean)}


def outcome_error(counts: Row) -> float:
    """Return the largest difference between shares of outcomes; `counts` has those columns of the table."""
    sides = [[counts[f"{side}_{ending}"] for ending in _ENDINGS] for side in ("recorded", "simulated")]
    shares = [[count / max(1, sum(side)) for count in side] for side in sides]
    return float(max(abs(one - other) for one, other in zip(*shares, strict=True)))


def refuse_promise(wait_us: float) -> None:
    """Raise PipelineError for a wait that nobody can promise."""
    if not 0 <= wait_us < math.inf:
        raise PipelineError(f"--p99-wait-ms: got {wait_us / 1000}, expected 0 or more")
