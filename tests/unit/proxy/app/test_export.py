"""When metrics are exported, and what a collector that fails or hangs costs; the sender is a fake."""

import asyncio
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from proxy.app.metrics.counters import OTLP_EXPORTS
from proxy.app.metrics.export import OtlpExport, make_export
from proxy.app.metrics.otel_settings import OtelSettings, export_wanted
from proxy.app.metrics.reading import Reading
from proxy.brokers.resolver import NAMES
from tests.support.log_lines import LogLines
from tests.support.loops.loops import eventually
from tests.support.patience import patient
from tests.support.proxies.counted import counted
from tests.support.proxies.metric_sources import full_sources

OFTEN = OtelSettings(interval_seconds=0.002, timeout_seconds=20.0)


@dataclass
class FakeSender:
    """Take what is sent; `problem` is what it says of it, and it waits for `goes_on`."""

    problem: str | None = None
    sent: list[dict[str, Reading]] = field(default_factory=list)
    threads: set[int] = field(default_factory=set)
    closed: bool = False

    def __post_init__(self) -> None:
        self.goes_on = threading.Event()
        self.goes_on.set()

    def send(self, readings: Sequence[Reading], at_ns: int) -> str | None:
        self.sent.append({reading.instrument.name: reading for reading in readings})
        self.threads.add(threading.get_ident())
        self.goes_on.wait(patient(60))
        return self.problem

    def close(self) -> None:
        self.closed = True


class Stage:
    def __init__(self, settings: OtelSettings, sender: FakeSender) -> None:
        self.sources, self.sender, self.lines = full_sources(), sender, LogLines()
        self.results = self.sources.counters[OTLP_EXPORTS]
        self.results.update(dict.fromkeys(self.results, 0))
        self.made: list[int] = []
        self.missing = False
        self.export = OtlpExport(settings, self.sources.counters, self.lines.log, self._make)

    def _make(self) -> Any:
        if self.missing:
            raise ImportError("no such library")
        self.made.append(threading.get_ident())
        return self.sender


def test_the_books_are_read_by_the_thread_that_owns_them_and_sent_by_another_again_and_again() -> None:
    async def main() -> None:
        stage, readers = Stage(OFTEN, FakeSender()), set()

        def names() -> dict[str, int]:
            readers.add(threading.get_ident())
            return {}

        stage.sources.counters.show(NAMES, names)
        stage.export.start()
        await eventually(lambda: stage.results["sent"] >= 2)
        # The last is waited for, or it might be sent and not counted.
        await stage.export.close(patient(20))
        assert readers == {threading.get_ident()}
        assert readers.isdisjoint(stage.sender.threads | {*stage.made})
        assert stage.results["sent"] == len(stage.sender.sent)

    asyncio.run(main())


def test_a_collector_that_hangs_has_one_thread_and_holds_nobody_up() -> None:
    async def main() -> None:
        stage = Stage(OtelSettings(0.002, 0.01), FakeSender())
        stage.sender.goes_on.clear()
        stage.export.start()
        await eventually(lambda: stage.results["skipped"] >= 3 and stage.sender.sent)
        assert stage.results["failed"] == len(stage.sender.sent) == 1
        await stage.export.close(0.01)
        assert stage.sender.closed
        assert len(stage.sender.sent) == 1
        stage.sender.goes_on.set()

    asyncio.run(main())


def test_a_collector_that_is_away_is_told_once_until_it_is_back() -> None:
    async def main() -> None:
        stage = Stage(OFTEN, FakeSender(problem="refused by http://me:secret@collector"))
        stage.export.start()
        await eventually(lambda: stage.results["failed"] >= 5)
        (line,) = stage.lines.said
        assert (line["level"], line["event"], line["exports"]) == ("warning", "metrics not exported", 1)
        assert "refused by" in line["detail"]
        assert "secret" not in line["detail"]
        stage.sender.problem = None
        await eventually(lambda: len(stage.lines.said) == 2)
        await stage.export.close()
        assert [line["event"] for line in stage.lines.said] == ["metrics not exported", "metrics are exported again"]

    asyncio.run(main())


def test_a_library_that_is_not_there_is_a_failed_export() -> None:
    async def main() -> None:
        stage = Stage(OFTEN, FakeSender())
        stage.missing = True
        stage.export.start()
        await eventually(lambda: stage.results["failed"] >= 2)
        stage.missing = False
        await eventually(lambda: stage.results["sent"])
        await stage.export.close()
        assert "no such library" in stage.lines.said[0]["detail"]
        assert counted(stage.sources.counters, "internal_errors", "otlp") == 0

    asyncio.run(main())


def test_notes_about_the_environment_are_in_the_log_without_secrets() -> None:
    async def main() -> None:
        lines = LogLines()
        environ = {"OTEL_SDK_DISABLED": "false", "OTEL_METRIC_EXPORT_INTERVAL": "http://me:secret@c"}
        settings = export_wanted(environ, lines.log)
        assert settings is not None
        make_export(settings, "blue", full_sources().counters, lines.log)
        note, started = lines.said
        assert note["detail"].startswith("OTEL_METRIC_EXPORT_INTERVAL: got ")
        assert "secret" not in note["detail"]
        assert (started["event"], started["seconds"]) == ("metrics are exported", 60.0)
        assert export_wanted({}, lines.log) is None
        assert len(lines.said) == 2

    asyncio.run(main())
