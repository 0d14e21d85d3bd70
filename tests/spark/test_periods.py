from pyspark.sql import SparkSession

from pipeline.core.periods import ALWAYS, Period, in_period
from tests.support.pipeline.usage_events import NOON_US, event, frame


def test_period_begins_with_since_and_ends_before_until(spark: SparkSession) -> None:
    events = frame(spark, [event(at) for at in range(5)])

    def arrivals(period: Period) -> list[int]:
        return sorted(row["ts_us"] - NOON_US for row in in_period(events, period).collect())

    assert arrivals(Period(NOON_US + 1, NOON_US + 3)) == [1, 2]
    assert arrivals(Period(None, NOON_US + 3)) == [0, 1, 2]
    assert arrivals(Period(NOON_US + 1, None)) == [1, 2, 3, 4]
    assert arrivals(ALWAYS) == [0, 1, 2, 3, 4]
