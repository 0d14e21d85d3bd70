import asyncio
import io
import json
from collections.abc import Mapping

import pytest

from proxy.config.config import Config
from proxy.core.log import open_log
from proxy.core.log_level import LogLevels
from proxy.relay.relay_log import RelayLog
from proxy.web.runtime_settings import RuntimeSettings
from tests.support.loops.loops import run_virtual
from tests.support.web.web_parts import config as made


class Holder:
    """A proxy as far as its settings see it."""

    def __init__(self) -> None:
        self.config = made(proxyLogLevel="0")
        self.pending: Mapping[str, str] = {}

    def take_config(self, config: Config) -> None:
        self.config = config

    def compute_budget(self, config: Config) -> None:
        pass


@pytest.mark.threat("refusal-log-storm")
def test_a_storm_of_changes_is_a_line_a_second_that_says_how_many_and_where_they_ended() -> None:
    async def main() -> None:
        loop, file, holder = asyncio.get_running_loop(), io.BytesIO(), Holder()
        log = open_log("info", "json", file)
        level, relay_log = LogLevels(log, loop, (), "info", {}), RelayLog(log, loop.time, 0)
        settings = RuntimeSettings(holder, log, level, relay_log, lambda: iter(()))
        for number in range(1000):
            settings.change("proxyLogLevel", "21"[number % 2])
        await asyncio.sleep(1.0)
        settings.tell(loop.time())
        settings.tell(loop.time())
        settings.change("logLevel", "debug")
        lines = [json.loads(line) for line in file.getvalue().splitlines()]
        found = [(line["key"], line["old"], line["new"], line.get("changes")) for line in lines]
        assert found == [
            ("proxyLogLevel", "0", "2", None),
            ("proxyLogLevel", "2", "1", 999),
            ("logLevel", "info", "debug", None),
        ]

    run_virtual(main())
