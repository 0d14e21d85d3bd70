"""The job `storms`: the days of `events` that have changed into `arrivals`, `storms` and `storm_members`."""

import argparse
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from pipeline.core.errors import ExitCode, PipelineError
from pipeline.core.options import CommonSettings, add_common, add_number, common_settings
from pipeline.core.periods import ALWAYS, Period, add_days, given_period
from pipeline.core.tables.storms import ARRIVALS, STORM_MEMBERS, STORMS
from pipeline.running.session import at_work
from pipeline.store.days import DAY, forget, note, of_days, read_days
from pipeline.store.tables import read_table, replace_days
from pipeline.transforms import storms as made

NAME = "storms"
EPOCH = date(1970, 1, 1)


@dataclass(frozen=True, slots=True)
class StormSettings:
    """The rule for a burst, and how many names `storm_members` has for each question."""

    common: CommonSettings
    rule: made.BurstRule = made.USUAL_RULE
    top: int = 10
    period: Period = ALWAYS


@dataclass(frozen=True, slots=True)
class StormSummary:
    """The findings for the line at the end of the job."""

    days: int = 0
    storms: int = 0
    peak_rate: int = 0

    def __str__(self) -> str:
        if not self.days:
            return "nothing new"
        return f"{self.storms:,} storms on {self.days:,} days, at most {self.peak_rate:,} arrivals a second"


def find_storms(spark: SparkSession, settings: StormSettings) -> StormSummary:
    """Make the three tables of the days with new events; raises PipelineError if there are none at all.

    A storm belongs to the day of its first second and may go on into the next, so the day before is looked at again;
    and so are the days of whose usual rate a day is a part. Those of them that nobody asked for and that were made with
    other options stay what they are. Arrivals are made of all days that these depend on.
    """
    common, rule = settings.common, settings.rule
    told = f"times={rule.times:g} floor={rule.floor} gap={rule.gap_seconds} top={settings.top}"
    days = read_days(spark, common, settings.period)
    dates = days.stale(NAME, told, days.wanted)
    if not dates:
        return StormSummary()
    others = days.of_others(NAME, told).difference(days.wanted)
    again = [day for day in days.around(dates, 1, made.USUAL_DAYS - 1) if day not in others]
    forget(spark, common, days, NAME, told, again)
    if counted := days.stale(ARRIVALS.name, "", days.around(again, made.USUAL_DAYS, 1)):
        replace_days(common, ARRIVALS, made.arrivals(of_days(spark, common, counted)), counted)
        note(spark, common, days, ARRIVALS.name, "", counted)
    found = _bursts(spark, settings, again)
    of_storms = [burst for mine in found.values() for burst in mine]
    stormy = {second // made.DAY_SECONDS for burst in of_storms for second in (burst.first, burst.last)}
    events = of_days(spark, common, [EPOCH + day * DAY for day in stormy])
    seconds = made.hot_seconds(spark, found)
    replace_days(common, STORMS, made.storms(events, seconds), again)
    replace_days(common, STORM_MEMBERS, made.storm_members(events, seconds, settings.top), again)
    note(spark, common, days, NAME, told, dates)
    return StormSummary(len(again), len(of_storms), max((burst.peak_rate for burst in of_storms), default=0))


def _bursts(
    spark: SparkSession, settings: StormSettings, days: Sequence[date]
) -> Mapping[str | None, Sequence[made.Burst]]:
    """Return the bursts of each cluster that begin on these days.

    The driver holds 16 bytes for each second with requests of these days, the week before and the day after.
    """
    first, last = days[0] - made.USUAL_DAYS * DAY, days[-1] + DAY
    rows = read_table(spark, settings.common, ARRIVALS).where(F.col("date").between(first, last))
    wanted = {(day - EPOCH).days for day in days}
    found = {}
    for cluster, mine in made.fleet_seconds(rows).toPandas().groupby("cluster", dropna=False):
        seconds, requests = mine[["second", "requests"]].to_numpy().T
        name = cluster if isinstance(cluster, str) else None
        found[name] = [each for each in made.bursts(seconds, requests, settings.rule) if each.day in wanted]
    return found


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the job."""
    add_common(parser)
    add_days(parser)
    usual = made.USUAL_RULE
    stormy = "a second is stormy with K times the usual arrivals, the median of the seven days to it"
    add_number(parser, "--times", usual.times, "K", stormy)
    add_number(parser, "--floor", usual.floor, "N", "and with at least N")
    add_number(parser, "--gap", usual.gap_seconds, "S", "calmer seconds that a storm may have within it")
    add_number(parser, "--top", 10, "N", "names of each ranking in `storm_members`")


def run(options: argparse.Namespace) -> int:
    """Run the job and say what it found; raises PipelineError."""
    common = common_settings(options)
    rule = made.BurstRule(options.times, options.floor, options.gap)
    settings = StormSettings(common, rule, options.top, given_period(options))
    if not 1 <= rule.times < math.inf or rule.floor < 1 or rule.gap_seconds < 0 or settings.top < 1:
        got = f"{rule.times:g}, {rule.floor}, {rule.gap_seconds} and {settings.top}"
        raise PipelineError(f"--times, --floor, --gap and --top: got {got}, expected numbers of at least 1, 1, 0 and 1")
    with at_work("storms", common) as spark:
        summary = find_storms(spark, settings)
    print(f"storms: {summary}")
    return ExitCode.OK
