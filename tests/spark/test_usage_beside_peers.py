from collections.abc import Callable
from pathlib import Path

from pyspark.sql import SparkSession

from benchmarks.pipeline.engine import Engine
from benchmarks.pipeline.generate.output import events_frame
from benchmarks.pipeline.generate.settings import GenerateSettings
from benchmarks.pipeline.usage import compare, duck, polar
from benchmarks.pipeline.usage.work import TOP, WINDOW_SECONDS
from pipeline.core.options import CommonSettings
from pipeline.core.tables.events import EVENTS
from pipeline.jobs.usage import UsageSettings, make_usage
from pipeline.store.tables import write_table

# 50 minutes, so that there are windows, and two hours of them.
SETTINGS = GenerateSettings(events=3_000, proxies=2, clients=100, tenants=5, namespaces=20, rate=0.5)


def test_all_engines_make_the_same_tables(spark: SparkSession, tmp_path: Path) -> None:
    """Somebody else's sums are the best check of ours; and the benchmark compares like with like."""
    ours = tmp_path / "spark"
    common = CommonSettings(str(ours), None, {})
    write_table(common, EVENTS, events_frame(spark, SETTINGS))
    make_usage(spark, UsageSettings(common, WINDOW_SECONDS, TOP))
    engines: dict[str, Callable[[Path, Path], Engine]] = {"duck": duck.Engine, "polar": polar.Engine}
    for name, engine in engines.items():
        place = tmp_path / name
        place.mkdir()
        made = engine(ours / "events", place)
        made.run()
        made.close()
        assert compare.differences(ours, place) == []
    assert all(compare.load(ours, table).height > 10 for table in compare.KEYS)
