"""`python -m tests.soak.brokers`: three embedded brokers of a soak, and topics that come and go for watchers.

One serves commands, one sends every byte back, one sends messages as fast as its clients take them.
"""

import argparse
import asyncio
import itertools
import json
import signal
from collections.abc import Sequence
from contextlib import suppress

import uvloop

from proxy.cli.demo.broker import EmbeddedBroker, raise_file_limit
from proxy.cli.demo.script import AfterHandshake, Script
from proxy.cli.demo.topics import GeneratedTopics

UPDATE_SECONDS = 1.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run until SIGTERM or SIGINT."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak.brokers")
    for name, default in (("namespaces", 40), ("topics", 1500), ("name-bytes", 60)):
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args(arguments)
    raise_file_limit()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_run(GeneratedTopics(options.namespaces, options.topics, options.name_bytes)))
    return 0


async def _run(store: GeneratedTopics) -> None:
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    flood = Script(after_handshake=AfterHandshake.FLOOD, flood_payload_bytes=4096)
    async with (
        EmbeddedBroker(store) as serving,
        EmbeddedBroker(store, Script(after_handshake=AfterHandshake.ECHO)) as echoing,
        EmbeddedBroker(store, flood) as flooding,
    ):
        ports = {"commands": serving.port, "echo": echoing.port, "flood": flooding.port}
        print(json.dumps(ports), flush=True)
        for count in itertools.count():
            with suppress(TimeoutError):
                async with asyncio.timeout(UPDATE_SECONDS):
                    await stopping.wait()
            if stopping.is_set():
                return
            name = f"persistent://{store.namespace(count % store.namespaces)}/new-{count}"
            await serving.announce(new=[name])
            await serving.announce(deleted=[name])


if __name__ == "__main__":
    raise SystemExit(main())
