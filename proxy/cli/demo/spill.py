"""Find a directory for lists on disk, and read how many lists the proxy moved there.

Rule: a directory that the proxy would refuse is not configured, so that the demo runs everywhere.
"""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from proxy.auth.failures import SettingFault
from proxy.net.spill.directory import check_path

ANSWER_SECONDS: Final = 10.0
_LISTS: Final = b"pulsar_proxy_spill_lists_total{"


def directory_for_lists(places: Sequence[Path]) -> Path | None:
    """Return a directory to configure below the first of `places` that the proxy accepts; None if it accepts none."""
    for place in places:
        found = place / "lists"
        try:
            check_path(str(place))
        except (SettingFault, OSError):
            continue
        return found
    return None


async def lists_moved(host: str, port: int) -> int:
    """Return how many lists the proxy has moved to disk; raises OSError or TimeoutError if its web port is gone."""
    lines = [line for line in await metric_lines(host, port) if line.startswith(_LISTS)]
    return int(float(lines[0].rpartition(b" ")[2])) if lines else 0


async def metric_lines(host: str, port: int) -> list[bytes]:
    """Return the lines of the proxy's metrics; raises OSError or TimeoutError if its web port is gone."""
    async with asyncio.timeout(ANSWER_SECONDS):
        reader, writer = await asyncio.open_connection(host, port)
        try:
            writer.write(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            answer = await reader.read(-1)
        finally:
            writer.close()
    return answer.splitlines()
