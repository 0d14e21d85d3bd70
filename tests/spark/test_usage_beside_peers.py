from pathlib import Path

from pyspark.sql import SparkSession

from benchmarks.pipeline.generate.output import write_parquet
from benchmarks.pipeline.generate.settings import GenerateSettings
from benchmarks.pipeline.usage import compare, duck, polar
from benchmarks.pipeline.usage.work import TOP, WINDOW_SECONDS
from pipeline.core.options import CommonSettings
from pipeline.usage.batch import make_usage
from pipeline.usage.settings import Engine as Sums
from pipeline.usage.settings import UsageSettings

# 50 minutes, so that there are windows, and two hours of them.
SETTINGS = GenerateSettings(events=3_000, proxies=2, clients=100, tenants=5, namespaces=20, rate=0.5)


def test_all_engines_make_the_same_tables(spark: SparkSession, tmp_path: Path) -> None:
    """Somebody else's sums are the best check of ours; and the benchmark compares like with like."""
    places = {name: tmp_path / name for name in ("spark", "duckdb's ours", "duck", "polar")}
    for place in places.values():
        place.mkdir()
    events = places["spark"]
    write_parquet(SETTINGS, events, lambda _: None)
    ours = places["duckdb's ours"]
    (ours / "events").symlink_to(events / "events", target_is_directory=True)
    sums: list[tuple[Path, Sums]] = [(events, "spark"), (ours, "duckdb")]
    for place, adds_up in sums:
        common = CommonSettings(str(place), "parquet", None, {})
        make_usage(spark, UsageSettings(common, WINDOW_SECONDS, TOP, engine=adds_up))
    assert compare.differences(events, ours) == []
    for name, engine in (("duck", duck.Engine), ("polar", polar.Engine)):
        made = engine(events / "events", places[name])
        made.run()
        made.close()
        assert compare.differences(events, places[name]) == []
    assert {table: compare.load(events, table).height > 10 for table in compare.KEYS} == dict.fromkeys(
        compare.KEYS, True
    )
