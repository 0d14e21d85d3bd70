"""The rounds in which engines are measured: each a process of its own, in turns, so that what slows one slows all.

Rule: the first run of each is kept apart, and every other round goes backwards.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final

from benchmarks.ladder.estimate import estimate
from benchmarks.ladder.processes import CACHE
from benchmarks.ladder.verdict import check
from benchmarks.pipeline import generate
from benchmarks.pipeline.engine import THREADS
from benchmarks.pipeline.generate.output import events_frame
from benchmarks.pipeline.generate.settings import GenerateSettings
from benchmarks.pipeline.process import EngineProcess
from eventlog import schema
from pipeline.core.options import CommonSettings
from pipeline.core.tables.events import EVENTS
from pipeline.running.session import at_work
from pipeline.store.tables import write_table

__all__ = ["SIZES", "Json", "events_of", "growth", "take_turns"]

Json = dict[str, Any]

SIZES: Final = (1_000_000, 10_000_000)
# Ten times the events may cost ten times as much, and a quarter more for what does not fit the caches.
MOST_TIMES_LINEAR: Final = 1.25
GENERATED: Final = CACHE / "generated-events"


def events_of(size: int) -> Path:
    """Return a directory of so many generated events, made at the first call and kept for all parts and later runs."""
    settings = GenerateSettings(size)
    # Events of another generator, or of another schema, are not those of this run.
    place = GENERATED / f"{size}-seed-{settings.seed}-{_sources_hash()}"
    done = place / "complete"
    if not done.exists():
        if place.exists():
            raise SystemExit(f"{place} was begun and not ended: delete it and run again")
        common = CommonSettings(str(place), f"local[{THREADS}]", {})
        with at_work("generate", common) as spark:
            write_table(common, EVENTS, events_frame(spark, settings))
        done.touch()
    print(f"  {size:,} events are there", flush=True)
    return place / "events"


def _sources_hash() -> str:
    sources = [*Path(generate.__file__).parent.glob("*.py"), Path(schema.__file__)]
    return blake2b(b"".join(path.read_bytes() for path in sorted(sources)), digest_size=4).hexdigest()


@contextmanager
def started(modules: Mapping[str, str], source: Path, place: Path) -> Iterator[dict[str, EngineProcess]]:
    """Yield a worker for each module, ready to run, with a directory of its name in `place` to write to."""
    with ExitStack() as stack:
        workers = {}
        for name, module in modules.items():
            out = place / name
            out.mkdir()
            workers[name] = stack.enter_context(EngineProcess([module, str(source), str(out)]))
        yield workers


def take_turns(modules: Mapping[str, str], titles: Mapping[str, str], source: Path, place: Path, rounds: int) -> Json:
    """Run engines in turns on what is in `source`; gives a row for each, its tables are in `place`."""
    with started(modules, source, place) as workers:
        runs: dict[str, list[float]] = {name: [] for name in workers}
        cpu: dict[str, list[float]] = {name: [] for name in workers}
        cold = {name: worker.run().seconds for name, worker in workers.items()}
        _say("first run", cold)
        for number in range(rounds):
            for name in list(workers) if number % 2 else list(reversed(workers)):
                run = workers[name].run()
                runs[name].append(run.seconds)
                cpu[name].append(run.cpu_seconds)
            _say(f"round {number + 1} of {rounds}", {name: found[-1] for name, found in runs.items()})
        return {
            name: {
                "title": titles[name],
                "seconds": estimate(runs[name]).as_json(),
                "runs": runs[name],
                "cpu_seconds": estimate(cpu[name]).as_json(),
                "cold_seconds": cold[name],
                "start_seconds": worker.start_seconds,
                "peak_rss_bytes": worker.peak_rss_bytes,
            }
            for name, worker in workers.items()
        }


def growth(engine: str, rows: Json, sizes: Sequence[int]) -> Json:
    """Judge what an engine's time grows by from the smaller to the larger size, in times of the sizes' own growth."""
    small, large = (float(rows[f"{engine}, {size:,} events"]["seconds"]["median"]) for size in sizes)
    got = large / small / (sizes[1] / sizes[0])
    return check(f"cost from {sizes[0]:,} to {sizes[1]:,} events, times linear", engine, got, MOST_TIMES_LINEAR)


def _say(what: str, seconds: Mapping[str, float]) -> None:
    print(f"  {what}: " + ", ".join(f"{name} {found:.2f} s" for name, found in seconds.items()), flush=True)
