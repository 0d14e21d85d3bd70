"""An HTTP server in a thread that answers as a test says, for clients that block."""

import json
import ssl
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

from tests.support.sockets.ports import LOOPBACK


class Asked(NamedTuple):
    method: str
    path: str
    headers: Message
    body: bytes


class Answer(NamedTuple):
    """What is no bytes is sent as JSON."""

    status: int
    content: Any = b""
    headers: Mapping[str, str] = {}


@dataclass
class Answering:
    """Answers in turn, the last one for ever; or by (method, path), where anything else is not found."""

    url: str
    answers: list[Answer] | dict[tuple[str, str], Answer] = field(default_factory=lambda: [Answer(200)])
    asked: list[Asked] = field(default_factory=list)

    def answer(self, asked: Asked) -> Answer:
        self.asked.append(asked)
        if isinstance(self.answers, dict):
            return self.answers.get(asked[:2], Answer(404, {"reason": "nothing here"}))
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


@contextmanager
def answering(tls: ssl.SSLContext | None = None) -> Iterator[Answering]:
    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            found = made.answer(Asked(self.command, self.path, self.headers, body))
            data = found.content if isinstance(found.content, bytes) else json.dumps(found.content).encode()
            self.send_response(found.status)
            for name, value in {"Content-Length": str(len(data)), **found.headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_PUT = do_POST = answer

        def log_message(self, *_: object) -> None:
            """Be quiet."""

    with ThreadingHTTPServer((LOOPBACK, 0), Handler) as server:
        made = Answering(f"{'https' if tls else 'http'}://{LOOPBACK}:{server.server_port}")
        if tls:
            server.socket = tls.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield made
        finally:
            server.shutdown()
            thread.join()
