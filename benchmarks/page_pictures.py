"""Draw the page for people in a browser: `python -m benchmarks.page_pictures`.

Rule: what is drawn is what a browser shows of a proxy with the defaults and small limits for lists, while eight clients
ask for lists for some time and nine then do not read.
"""

import argparse
import asyncio
import tempfile
import time
from pathlib import Path
from typing import Final

from proxy.cli.demo.broker import EmbeddedBroker
from proxy.cli.demo.topics import GeneratedTopics
from tests.support.clients.async_client import LOOPBACK, AsyncClient
from tests.support.proxies.running_proxy import Running, child_proxy
from tests.support.web.browser import browsing

IMAGES: Final = Path(__file__).resolve().parents[1] / "docs" / "images"
NAMESPACES, TOPICS, NAME_BYTES = 20, 7_000, 100
READERS, STANDING, STANDING_BUFFER = 8, 9, 4_096
PAUSE_SECONDS: Final = 0.4
KEYS: Final = {
    "clusterName": "orders-eu",
    "maxTopicListInFlightHeapMemSizeMB": 4,
    "maxTopicListInFlightDirectMemSizeMB": 4,
    "maxTopicListInFlightDirectMemSizePermitsAcquireTimeoutMillis": 4_000,
    "brokerProxyAllowedTargetPorts": "*",
}
SHOWN: Final = "document.documentElement.dataset.ready === 'yes' && document.querySelector('#config td')"
REFUSED: Final = "document.querySelector('#refusals td')"
# File, width, height, colours.
PICTURES: Final = (("page-light.png", 1280, 1350, "light"), ("page-dark-phone.png", 390, 2700, "dark"))


async def _ask(proxy: Running, number: int, until: float) -> None:
    client = await proxy.connected()
    while time.monotonic() < until:
        await client.topics(f"demo/ns-{number:02}")
        await asyncio.sleep(PAUSE_SECONDS)


async def _stand(proxy: Running, number: int) -> None:
    client = await AsyncClient.open(proxy.port, STANDING_BUFFER)
    proxy.clients.append(client)
    await client.connect()
    await client.ask_topics(f"demo/ns-{number:02}")


async def draw(directory: Path, seconds: float) -> None:
    """Run the clients, and write the pictures."""
    async with (
        EmbeddedBroker(GeneratedTopics(NAMESPACES, TOPICS, NAME_BYTES)) as broker,
        child_proxy(directory, broker, **KEYS) as proxy,
    ):
        until = time.monotonic() + seconds
        async with asyncio.TaskGroup() as group:
            for number in range(READERS):
                group.create_task(_ask(proxy, number, until))
        for number in range(STANDING):
            await _stand(proxy, number)
        async with browsing(f"http://{LOOPBACK}:{proxy.web_port}/", directory / "profile") as tab:
            await tab.until(SHOWN)
            await tab.until(REFUSED)
            for name, width, height, scheme in PICTURES:
                await tab.screen(width, height, scheme)
                (IMAGES / name).write_bytes(await tab.picture())
                print(IMAGES / name)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.page_pictures", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--seconds", type=float, default=90.0, help="how long the clients ask (default: %(default)s)")
    with tempfile.TemporaryDirectory(prefix="pulsar-proxy-page-") as directory:
        asyncio.run(draw(Path(directory), parser.parse_args().seconds))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
