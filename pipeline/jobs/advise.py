"""The job `advise`: from the tried points to the smallest limits that hold a target, tried once more with headroom.

Rule: no advice without a calibration that can be trusted, and none that was not replayed itself, as it is. The
advice of an earlier run is withdrawn first: however this one ends, nothing is left that it did not say.
"""

import argparse
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Final

from pyspark.sql import SparkSession

from pipeline.core import choice
from pipeline.core.advice_text import Advice, advised, fragment
from pipeline.core.bounds import WatchShare, extrapolated, floor_of, watch_share
from pipeline.core.calibration import ALL, Trust, judge
from pipeline.core.choice import Point, Target
from pipeline.core.errors import ExitCode, PipelineError
from pipeline.core.model import Limits
from pipeline.core.options import CommonSettings, add_common, add_number, add_promise, common_settings
from pipeline.core.paths import conf_path, is_fragment
from pipeline.core.tables.history import ADVICE_HISTORY
from pipeline.core.tables.whatif import ADVICE, CALIBRATION, OUTCOME_COLUMNS, REPLAY_INPUT, REPLAYED, WHATIF
from pipeline.jobs.whatif import Say, replay_path, run_row, scenario_rows, withdraw_advice
from pipeline.replay.job import Place, replay_grid
from pipeline.replay.parts import Survey, survey
from pipeline.replay.traces import LIMIT_NAMES, Prepared, SeenMemory, limit_values, limits_of, prepared_before, seen_of
from pipeline.replay.windows import window_rows
from pipeline.report.units import size
from pipeline.running.session import at_work
from pipeline.store.history import add_row
from pipeline.store.tables import exists, read_table, write_rows

MOST_ROUNDS: Final = 6
# The load of a target that nobody has named.
RECORDED_LOAD: Final = 1
REFUSALS: Final = tuple(
    column.name for column in OUTCOME_COLUMNS if column.name.startswith(("timeout", "queue_full", "oversize"))
)
_SHOWN: Final = ("fleet", "requests", "refused", "wait_p99_us", "growths_waited")


@dataclass(frozen=True, slots=True)
class AdviseSettings:
    """Where the tables are, what must be held, with how much to spare, and what calibration is trusted.

    Raises PipelineError for what cannot be meant, so that nobody waits for a grid to hear of it.
    """

    common: CommonSettings
    target: Target
    headroom: float = 0.25
    max_error: float = 0.2
    conf_file: str | None = None
    max_imputed: float = 0.5
    min_requests: int = 100

    def __post_init__(self) -> None:
        choice.refuse_headroom(self.headroom)
        _ = self.trust
        if self.conf_file is not None and not Path(self.conf_file).resolve().parent.is_dir():
            raise PipelineError(f"--conf-file: got {self.conf_file}, expected a file in a directory that is there")
        if self.conf_file is not None and (path := Path(self.conf_file)).exists() and not is_fragment(path):
            raise PipelineError(
                f"--conf-file: got {self.conf_file}, which advise has not written, expected another name: the lines of"
                " the advice would take its place"
            )

    @property
    def trust(self) -> Trust:
        return Trust(self.max_error, self.max_imputed, self.min_requests)

    @property
    def conf_path(self) -> Path | None:
        """Return where the fragment goes: by default beside the tables, if that is a directory here."""
        return conf_path(self.common.out, self.conf_file)


@dataclass(frozen=True, slots=True)
class AdviseSummary:
    """The choice, its lines of proxy.conf, and the file they are in, if any."""

    advice: Advice
    conf: str
    conf_path: Path | None

    def __str__(self) -> str:
        limits, proxies = self.advice.limits, self.advice.final.proxies
        sizes = f"heap {size(limits.heap_bytes)}, direct {size(limits.direct_bytes)}"
        return f"{sizes} for each of {proxies} proxies{f', in {self.conf_path}' if self.conf_path else ''}"


class _Trials:
    """Points that were tried at the load of the target, by step, and the means to try more.

    Points below the floor of their fleet are shown, and never chosen.
    """

    def __init__(self, spark: SparkSession, prepared: Prepared, found: Survey, load: int) -> None:
        self._spark = spark
        self.prepared = prepared
        self._found = found
        self._load = load
        self.steps: list[tuple[str, int, Point]] = []

    @property
    def points(self) -> list[Point]:
        """Return all that were tried and may be advised, but the final one."""
        return [point for step, _, point in self.steps if step != "final" and self.allows(point)]

    def floor(self, fleet: int) -> tuple[int, int]:
        """Return the least memory of both kinds that may be advised to a proxy of that fleet."""
        seen = self.prepared.seen
        peaks = seen.peak_heap_bytes, seen.peak_direct_bytes
        return floor_of(self.prepared.largest, peaks, fleet, seen.unproven_readers_percent)

    def allows(self, point: Point) -> bool:
        """Return whether a point is above the floor of its fleet."""
        return choice.above(point.limits, self.floor(point.fleet)) == point.limits

    def raise_to_floor(self) -> None:
        """Try what of the grid is below the floor once more, at the floor."""
        tried = {(point.fleet, point.limits) for _, _, point in self.steps}
        for fleet in sorted({point.fleet for _, _, point in self.steps}):
            below = [p.limits for _, _, p in self.steps if p.fleet == fleet and not self.allows(p)]
            raised = dict.fromkeys(choice.above(limits, self.floor(fleet)) for limits in below)
            if wanted := [limits for limits in raised if (fleet, limits) not in tried]:
                self.add("floor", self.run(fleet, wanted))

    def add(self, step: str, points: Sequence[Point]) -> None:
        first = sum(step == other for other, _, _ in self.steps)
        self.steps += [(step, number, point) for number, point in enumerate(points, first)]

    def run(self, fleet: int, limits: Sequence[Limits]) -> list[Point]:
        totals = replay_grid(self._spark, self.prepared, self._found, [Place(self._load, fleet)], limits)
        return [_point(row) for row in scenario_rows(self.prepared, limits, totals)]


def advise(spark: SparkSession, settings: AdviseSettings, say: Say = print) -> AdviseSummary:
    """Choose limits and write the table `advice`; raises PipelineError if nothing holds or the replay is off."""
    common, target = settings.common, settings.target
    withdraw_advice(spark, common, settings.conf_path)
    whole = read_table(spark, common, WHATIF).collect()
    if not whole:
        raise PipelineError(
            f"--out {common.out}: the job whatif was begun and did not end, expected it to: run it again"
        )
    rows = [row.asDict() for row in read_table(spark, common, CALIBRATION).collect()]
    before = read_table(spark, common, REPLAYED).collect()
    of_all = [seen_of(row) for row in before]
    waited = max((seen.waited for seen in of_all), default=0)
    judged = settings.trust.in_all(judge(rows, target.p99_wait_us).get(ALL), waited, _not_replayed(of_all))
    tried = [row for row in whole if row.load == target.load]
    if not tried:
        raise PipelineError(f"--load: got {target.load}, expected a load of the table whatif: add it to --load there")
    if not exists(spark, replay_path(common)):
        raise PipelineError(f"--out {common.out}: found no `{REPLAY_INPUT.name}`: run the job whatif")
    prepared = prepared_before(spark, before, replay_path(common))
    trials = _Trials(spark, prepared, survey(spark, prepared, rows=window_rows([target.load])), target.load)
    trials.add("grid", [_point(row.asDict()) for row in tried])
    trials.raise_to_floor()
    held = _refined(trials, target)
    if held is None:
        _write(spark, common, trials, target)
        raise PipelineError(_next_steps(trials, target))
    final = _final(trials, held, settings)
    seen = prepared.seen
    watch = watch_share(seen.peak_watch_bytes, seen.largest_watch_bytes, target.load, held.fleet)
    _write(spark, common, trials, target, final if choice.holds(final, target) else None, watch)
    if not choice.holds(final, target):
        raise PipelineError(
            f"{_missed(final)}, although less memory held the target: try a larger --headroom or an easier target"
        )
    advice = Advice(
        target,
        held,
        final,
        settings.headroom,
        prepared.usual_limits,
        prepared.largest,
        judged,
        prepared.imputed_share,
        watch,
        trials.floor(held.fleet),
        seen.unproven_readers_percent,
        seen.spill_limit_bytes,
    )
    add_row(spark, common, ADVICE_HISTORY, _history_row(prepared, advice))
    conf = fragment(advice)
    say(conf)
    if settings.conf_path is not None:
        _save(settings.conf_path, conf)
    return AdviseSummary(advice, conf, settings.conf_path)


def _not_replayed(seen: Iterable[SeenMemory]) -> list[str]:
    """Return the settings without which rules were in force that are not replayed."""
    rules = [(each.unproven_readers_percent < 100, each.spill_limit_bytes > 0) for each in seen]
    settings = {"topicListUnprovenReadersMemoryPercent=100": 0, "no topicListSpillDirectory": 1}
    return [setting for setting, which in settings.items() if any(rule[which] for rule in rules)]


def _history_row(prepared: Prepared, advice: Advice) -> dict[str, Any]:
    return run_row(prepared, advice.target.p99_wait_us) | {
        "load": advice.target.load,
        "fleet": advice.final.fleet,
        "proxies": advice.final.proxies,
        "max_refused": float(advice.target.max_refused),
        "watch_direct_bytes": advice.watch.size_bytes,
        "extrapolated": _columns_of(advice.extrapolated),
        **limit_values(advice.limits),
    }


def _columns_of(extrapolated: Iterable[str]) -> str:
    columns = {name: column for column, name in LIMIT_NAMES.items()}
    return ", ".join(columns.get(name, name) for name in extrapolated)


def _refined(trials: _Trials, target: Target) -> Point | None:
    """Try sizes between the smallest that hold and the largest that fail, on each fleet, until none is left."""
    for _ in range(MOST_ROUNDS):
        new = []
        for fleet, best in choice.best_of_each_fleet(trials.points, target).items():
            if limits := choice.refinements(trials.points, best, target, trials.floor(fleet)):
                new += trials.run(fleet, limits)
        if not new:
            break
        trials.add("refined", new)
    return choice.cheapest(trials.points, target)


def _final(trials: _Trials, held: Point, settings: AdviseSettings) -> Point:
    final = trials.run(held.fleet, [choice.with_headroom(held.limits, settings.headroom, trials.floor(held.fleet))])
    trials.add("final", final)
    return final[0]


def _next_steps(trials: _Trials, target: Target) -> str:
    free = [
        point
        for fleet in sorted({point.fleet for point in trials.points})
        for point in trials.run(fleet, [replace(trials.points[0].limits, heap_bytes=0, direct_bytes=0)])
    ]
    return choice.why_nothing(trials.points, free, target)


def _save(path: Path, conf: str) -> None:
    try:
        path.write_text(conf, "utf-8")
    except OSError as error:
        raise PipelineError(f"--conf-file: cannot write {path}: {error.strerror}", ExitCode.FAILED) from error


def _missed(final: Point) -> str:
    waited = f"99 % waited at most about {final.wait_p99_us / 1000:.0f} ms"
    return f"with headroom {final.refused} of {final.requests} requests are refused and {waited}"


def _point(row: Mapping[str, Any]) -> Point:
    """Read a row of the table `whatif`."""
    same = {field.name: row[field.name] for field in fields(Point) if field.name not in ("limits", "refused")}
    return Point(limits=limits_of(row), refused=sum(row[name] for name in REFUSALS), **same)


def _write(
    spark: SparkSession,
    common: CommonSettings,
    trials: _Trials,
    target: Target,
    chosen: Point | None = None,
    watch: WatchShare | None = None,
) -> None:
    best = list(choice.best_of_each_fleet(trials.points, target).values())
    recorded = trials.prepared.usual_limits
    rows: list[dict[str, Any]] = []
    for step, number, point in trials.steps:
        # Advised limits have room for watch frames and for shares; limits that were tried are for lists alone.
        limits, room = point.limits, 0
        if watch is not None and point is chosen:
            limits = advised(limits, watch, trials.prepared.seen.unproven_readers_percent)
            room = watch.size_bytes
        rows.append(
            {
                "step": step,
                "scenario": number,
                **limit_values(limits),
                "load": target.load,
                "promised_wait_us": float(target.p99_wait_us),
                **{name: getattr(point, name) for name in _SHOWN},
                "memory_bytes": replace(point, limits=limits).memory_bytes,
                "watch_direct_bytes": room,
                "extrapolated": _columns_of(extrapolated(limits, recorded, target.load)),
                "holds": choice.holds(point, target) and trials.allows(point),
                "best": any(point is each for each in best),
                "chosen": point is chosen,
            }
        )
    write_rows(spark, common, ADVICE, rows)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_common(parser)
    add_number(parser, "--load", RECORDED_LOAD, "N", "of the target")
    add_number(parser, "--max-refused", 0.0, "SHARE", "of all requests")
    add_promise(parser)
    add_number(parser, "--headroom", 0.25, "SHARE", "on top of what holds")
    add_number(parser, "--max-error", 0.2, "E", "of the calibration")
    add_number(parser, "--max-imputed", 0.5, "SHARE", "of requests with sizes or times of others")
    add_number(parser, "--min-requests", 100, "N", "that the calibration must have compared")
    add_conf_file(parser)


def add_conf_file(parser: argparse.ArgumentParser) -> None:
    """Declare where the lines of proxy.conf go."""
    text = "for the fragment of proxy.conf (default: advice.conf in --out)"
    parser.add_argument("--conf-file", metavar="FILE", help=text)


def settings_of(options: argparse.Namespace) -> AdviseSettings:
    """Read the settings; raises PipelineError."""
    target = Target(options.load, options.max_refused, options.p99_wait_ms * 1000)
    trust = options.max_imputed, options.min_requests
    return AdviseSettings(
        common_settings(options), target, options.headroom, options.max_error, options.conf_file, *trust
    )


def run(options: argparse.Namespace) -> int:
    """Run the job; raises PipelineError."""
    settings = settings_of(options)
    with at_work("advise", settings.common) as spark:
        advise(spark, settings)
    return ExitCode.OK
