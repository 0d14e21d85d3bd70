"""`python -m tests.soak.brokers`: three embedded brokers of a soak, and topics that come and go for watchers.

One serves commands, one sends every byte back, one sends messages as fast as its clients take them. A web service
beside them answers, takes uploads, and gives messages of WebSockets back.
"""

import asyncio
import itertools
import json
import signal
from contextlib import suppress

import uvloop
from aiohttp import web

from proxy.core.descriptors import raise_descriptor_limit
from tests.support.brokers.embedded.broker import EmbeddedBroker
from tests.support.brokers.embedded.script import AfterHandshake, Script
from tests.support.brokers.embedded.topics import GeneratedTopics
from tests.support.web.fake_web_broker import echoed, fake_web_broker

NAMESPACES, TOPICS, NAME_BYTES = 40, 1500, 60
UPDATE_SECONDS = 1.0
DOCUMENT = bytes(range(256)) * 200


async def serve(request: web.BaseRequest) -> web.StreamResponse:
    """Give the document to a GET, the size of its body to a PUT, and each message back."""
    if request.headers.get("Upgrade") == "websocket":
        return await echoed(request)
    size = len(await request.read())
    response = web.Response(body=str(size).encode() if request.method == "PUT" else DOCUMENT)
    # Connections that are kept for 25 s would be those that a quiet moment waits for.
    response.force_close()
    return response


def main() -> int:
    """Run until SIGTERM or SIGINT."""
    raise_descriptor_limit()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_run(GeneratedTopics(NAMESPACES, TOPICS, NAME_BYTES)))
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
        fake_web_broker(serve) as answering,
    ):
        ports = {"commands": serving.port, "echo": echoing.port, "flood": flooding.port, "web": answering.port}
        print(json.dumps(ports), flush=True)
        for count in itertools.count():
            with suppress(TimeoutError):
                async with asyncio.timeout(UPDATE_SECONDS):
                    await stopping.wait()
            if stopping.is_set():
                return
            answering.asked.clear()
            name = f"persistent://{store.namespace(count % store.namespaces)}/new-{count}"
            await serving.announce(new=[name])
            await serving.announce(deleted=[name])


if __name__ == "__main__":
    raise SystemExit(main())
