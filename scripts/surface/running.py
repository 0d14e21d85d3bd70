"""Two running proxies before the broker of `demo`, one with defaults and one with everything on, and what they show.

Both serve the same clients: one asks for lists, one is relayed and watches topics, one is refused.
"""

import base64
import contextlib
import gzip
import hashlib
import hmac
import http.client
import json
import re
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

import trustme

from protocol.pb import PulsarApi_pb2 as pb
from scripts.surface.commands import PROXY, ending, environment, run
from scripts.surface.text import merged, plain, plain_values, shape
from scripts.surface.tree import ROOT

HOST: Final = "127.0.0.1"
PATIENCE_SECONDS: Final = 30.0
NAMESPACE: Final = "demo/ns-0"
SECRET: Final = b"a secret of 32 bytes, for a test"
PAGES: Final = (
    "/healthz", "/readyz", "/status.html", "/config", "/proxy-stats/connections", "/proxy-stats/topics",
    "/proxy-stats/logging", "/metrics", "/nothing", "/admin/v2/clusters",
)  # fmt: skip
CHANGES: Final = (
    ("PUT", "/v1/log-level", {"level": "warning", "seconds": 60}),
    ("PUT", "/v1/log-level", {"level": "bogus"}),
    ("GET", "/v1/connections?mode=bogus", None),
    ("GET", "/v1/nothing", None),
    ("POST", "/v1/top", None),
    ("DELETE", "/v1/connections/999999", None),
    ("POST", "/v1/reload", None),
    ("POST", "/v1/drain", None),
)
COMMANDS: Final = (
    "health", "top --once", "top --once --json", "config", "config --json", "log-level", "log-level debug --for 60",
    "admin connections", "admin connections --json --mode relay", "admin queue", "admin groups", "admin limiters",
    "admin config", "admin log-level info", "admin kill 999999", "admin reload",
)  # fmt: skip
_SAMPLE: Final = re.compile(r"^(\w+)(?:\{(.*)\})? \S+$")
_LABEL: Final = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
# Labels whose values are of this machine, not of the code.
_OF_THE_MACHINE: Final = frozenset({"version", "python"})


class Process:
    """Run one command of the proxy until the block ends; its output goes to a file."""

    def __init__(self, home: Path, name: str, *arguments: str) -> None:
        self._output = home / f"{name}.out"
        with self._output.open("wb") as output:
            self._process = subprocess.Popen(
                [*PROXY, *arguments], cwd=ROOT, env=environment(home), stdin=subprocess.DEVNULL, stdout=output,
                stderr=subprocess.STDOUT,
            )  # fmt: skip

    def said(self) -> str:
        """Return all output so far."""
        return self._output.read_text(encoding="utf-8")

    def lines(self) -> list[dict[str, Any]]:
        """Return the output's lines of JSON."""
        return [json.loads(line) for line in self.said().splitlines() if line.startswith("{") and line.endswith("}")]

    def found(self, pattern: str) -> str:
        """Wait until the output has a pattern, and return its group."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while (match := re.search(pattern, self.said())) is None:
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"no {pattern!r} in the output:\n{self.said()}")
            time.sleep(0.02)
        return match[1]

    def left(self) -> int:
        """Wait until the process ends by itself, and return its exit code."""
        return self._process.wait(PATIENCE_SECONDS)

    def end(self) -> None:
        """End the process if it runs."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        try:
            self.left()
        finally:
            self._process.kill()


class Client:
    """A Pulsar client of a few commands, over a blocking socket."""

    def __init__(self, port: int, connect: Mapping[str, Any]) -> None:
        self._socket = socket.create_connection((HOST, port), PATIENCE_SECONDS)
        self._reader = self._socket.makefile("rb")
        self.ask(connect={"client_version": "surface", "protocol_version": 21, **connect})

    def ask(self, **command: Mapping[str, Any]) -> pb.BaseCommand | None:
        """Send one command, named by its field, and return the next that comes; None at the end."""
        ((name, fields),) = command.items()
        field = pb.BaseCommand.DESCRIPTOR.fields_by_name[name]
        kinds = pb.BaseCommand.Type.items()
        (kind,) = (number for word, number in kinds if word.replace("_", "").lower() == _KINDS.get(name, name).lower())
        sent = pb.BaseCommand(type=kind, **{field.name: fields}).SerializeToString()
        self._socket.sendall((len(sent) + 4).to_bytes(4, "big") + len(sent).to_bytes(4, "big") + sent)
        size = int.from_bytes(self._reader.read(4), "big")
        body = self._reader.read(size)
        return pb.BaseCommand.FromString(body[4 : 4 + int.from_bytes(body[:4], "big")]) if size else None

    def close(self) -> None:
        """Close the connection."""
        self._reader.close()
        self._socket.close()


_KINDS: Final = {"lookupTopic": "lookup", "partitionMetadata": "partitionedMetadata"}


class ControlSocket(http.client.HTTPConnection):
    """HTTP over the control socket."""

    def connect(self) -> None:
        """Connect to the path that stands for the host."""
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(PATIENCE_SECONDS)
        self.sock.connect(self.host)


def asked(
    connection: http.client.HTTPConnection, method: str, path: str, body: Any, token: str
) -> tuple[int, Any, Any]:
    """Return status, headers and body (a document, or a text) of one answer."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    sent = None if body is None else json.dumps(body)
    with contextlib.closing(connection):
        connection.request(method, path, sent, headers)
        answer = connection.getresponse()
        text = answer.read().decode()
    is_json = "json" in answer.headers.get("Content-Type", "")
    return answer.status, answer.headers, json.loads(text) if is_json and text else text


class Seen:
    """One proxy, the clients before it, and every theme as it shows."""

    def __init__(self, home: Path, broker: str, settings: Mapping[str, str], token: str) -> None:
        self.token, self.places = token, {str(home): "HOME", socket.gethostname(): "MACHINE"}
        self.control, conf = home / "control.sock", home / "proxy.conf"
        conf.write_text("".join(f"{key}={value}\n" for key, value in {**settings, "brokerServiceURL": broker}.items()))
        self.home, self.conf, self.themes = home, conf, dict[str, Any]()
        self._proxy = Process(home, "proxy", "serve", "--config", str(conf))
        try:
            self.web_port = int(self._proxy.found(r'"web_port":(\d+)'))
            with self._clients(int(self._proxy.found(r'"port":(\d+)')), broker):
                self._look()
                # The last request was to drain; clients that stay make the end of the drain the same each time.
                self.themes["commands"]["serve, then drain"] = self._proxy.left()
        finally:
            self._proxy.end()
        self.themes["log"] = log_lines(self._proxy.lines())
        self.themes["events"] = events_in(home / "events")

    @contextlib.contextmanager
    def _clients(self, port: int, broker: str) -> Iterator[None]:
        connect = {"auth_method_name": "token", "auth_data": self.token.encode()} if self.token else {}
        lists = Client(port, connect)
        lists.ask(getTopicsOfNamespace={"request_id": 1, "namespace": NAMESPACE})
        lists.ask(getTopicsOfNamespace={"request_id": 2, "namespace": "no/such"})
        lists.ask(lookupTopic={"request_id": 3, "topic": f"persistent://{NAMESPACE}/t"})
        lists.ask(partitionMetadata={"request_id": 4, "topic": f"persistent://{NAMESPACE}/t"})
        relayed = Client(port, {**connect, "proxy_to_broker_url": broker.removeprefix("pulsar://")})
        watch = {"request_id": 1, "watcher_id": 1, "namespace": NAMESPACE, "topics_pattern": ".*"}
        relayed.ask(watchTopicList=watch)
        refused = Client(port, {"proxy_to_broker_url": "elsewhere:1", **connect, "auth_data": b"bad"})
        yield
        for client in (lists, relayed, refused):
            client.close()

    def _look(self) -> None:
        self.themes["web"] = {f"{path} {who}": self._page(path, token) for path in PAGES for who, token in self._who()}
        self._wait_for_rates()
        _, _, index = self._admin("GET", "/v1", None)
        _, _, rows = self._admin("GET", "/v1/connections", None)
        paths = [route["path"] for route in index["routes"] if route["method"] == "GET"]
        wanted = [("GET", path.replace("{id}", str(rows["connections"][0]["id"])), None) for path in paths]
        asks = {f"GET {path}": self._admin(*each) for path, each in zip(paths, wanted, strict=True)}
        body = asked(self._web(), "GET", "/metrics", None, self.token)[2]
        self.themes["metrics"] = families(body)
        self.themes["commands"] = {each: ending(self._command(each)) for each in COMMANDS}
        asks |= {f"{each[0]} {each[1]} {json.dumps(each[2])}": self._admin(*each) for each in CHANGES}
        self.themes["admin"] = {name: self._shown(*answer) for name, answer in asks.items()}

    def _wait_for_rates(self) -> None:
        # Rates need two looks of the proxy at itself, a second apart.
        deadline = time.monotonic() + PATIENCE_SECONDS
        while '"per_second": {}' in json.dumps(self._admin("GET", "/v1/top", None)[2]) and time.monotonic() < deadline:
            time.sleep(0.1)

    def _who(self) -> Iterator[tuple[str, str]]:
        yield from [("nobody", ""), ("token", self.token)][: 2 if self.token else 1]

    def _web(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection(HOST, self.web_port, timeout=PATIENCE_SECONDS)

    def _admin(self, method: str, path: str, body: Any) -> tuple[int, Any, Any]:
        return asked(ControlSocket(str(self.control)), method, path, body, "")

    def _page(self, path: str, token: str) -> Any:
        answer = asked(self._web(), "GET", path, None, token)
        return self._shown(*answer) if path != "/metrics" or answer[0] != 200 else self._shown(*answer[:2], "metrics")

    def _shown(self, status: int, headers: Mapping[str, str], body: Any) -> dict[str, Any]:
        # Values of keys are frozen, of anything else only names and types.
        is_config = isinstance(body, dict) and "http_reverse_proxies" in body
        shown = plain_values(body, self.places) if is_config else shape(body)
        text = plain(body, self.places) if isinstance(body, str) else shown
        names = sorted(name.lower() for name in headers)
        return {"status": status, "type": headers.get("Content-Type"), "headers": names, "body": text}

    def _command(self, words: str) -> subprocess.CompletedProcess[str]:
        return run([*PROXY, *words.split(), "--config", str(self.conf)], self.home)


def families(text: str) -> dict[str, Any]:
    """Return the metrics of a scrape: the type of each family, and for each sample its labels with their values."""
    types = dict(line.split()[2:4] for line in text.splitlines() if line.startswith("# TYPE "))
    samples: dict[str, set[str]] = {}
    for name, labels in (match.groups() for match in map(_SAMPLE.match, text.splitlines()) if match):
        pairs = [
            (label, "*" if label in _OF_THE_MACHINE else plain(value)) for label, value in _LABEL.findall(labels or "")
        ]
        samples.setdefault(name, set()).add(", ".join(f"{label}={value}" for label, value in pairs))
    return {"types": types, "samples": samples}


def log_lines(lines: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the level and the fields of each event that was logged."""
    found: dict[str, Any] = {}
    for line in lines:
        facts = {"levels": {line["level"]}, "fields": set(line)}
        known = found.setdefault(plain(line["event"]), facts)
        for name, values in facts.items():
            known[name] |= values
    return found


def events_in(directory: Path) -> dict[str, Any]:
    """Return the fields of the events that were written, by kind."""
    found: dict[str, list[Any]] = {}
    for path in sorted(directory.rglob("*.gz")):
        for line in gzip.decompress(path.read_bytes()).splitlines():
            event = json.loads(line)
            found.setdefault(event["kind"], []).append(shape(event))
    return {kind: merged(shapes) for kind, shapes in found.items()}


def token() -> str:
    """Return a token of the role `surface`, signed with the secret."""
    parts = [_base64(json.dumps(part).encode()) for part in ({"alg": "HS256"}, {"sub": "surface"})]
    signature = hmac.new(SECRET, ".".join(parts).encode(), hashlib.sha256).digest()
    return ".".join([*parts, _base64(signature)])


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def default_settings(home: Path) -> dict[str, str]:
    keys = {"servicePort": "0", "webServicePort": "0", "bindAddress": HOST, "clusterName": "surface"}
    target = {"brokerProxyAllowedTargetPorts": "*", "controlSocketPath": str(home / "control.sock")}
    return {**keys, **target, "shutdownPreDrainMillis": "0", "shutdownDrainMillis": "500"}


def all_settings(home: Path) -> dict[str, str]:
    """Return settings that turn on every family of metrics: TLS, tokens, event log, admin port, statistics."""
    certificate = trustme.CA().issue_cert("localhost", HOST)
    certificate.private_key_pem.write_to_path(home / "key.pem")
    certificate.cert_chain_pems[0].write_to_path(home / "cert.pem")
    (home / "admin.token").write_text("a-token-for-the-admin-api\n")
    (home / "admin.token").chmod(0o600)
    with socket.create_server((HOST, 0)) as free:
        admin_port = free.getsockname()[1]
    return {
        **default_settings(home),
        "servicePortTls": "0", "webServicePortTls": "0", "tlsCertificateFilePath": str(home / "cert.pem"),
        "tlsKeyFilePath": str(home / "key.pem"), "authenticationEnabled": "true", "authorizationEnabled": "true",
        "authenticationProviders": "org.apache.pulsar.broker.authentication.AuthenticationProviderToken",
        "tokenSecretKey": f"data:;base64,{base64.b64encode(SECRET).decode()}", "superUserRoles": "surface",
        "eventLogDirectory": str(home / "events"), "eventLogIdentities": "plain", "proxyLogLevel": "2",
        "adminApiAddress": f"{HOST}:{admin_port}", "adminApiTokenFilePath": str(home / "admin.token"),
        "logLevel": "debug", "httpRequestsLimitEnabled": "true", "topicListFairness": "namespace",
    }  # fmt: skip


_ONCE: Final = threading.Lock()


def part(theme: str) -> dict[str, Any]:
    """Return one theme of both proxies; they run once, whichever theme is asked for first."""
    with _ONCE:
        return {name: themes[theme] for name, themes in _themes().items()}


@cache
def _themes() -> dict[str, dict[str, Any]]:
    with tempfile.TemporaryDirectory(prefix="surface-") as name:
        top = Path(name)
        homes = {"defaults": top / "a", "everything": top / "b"}
        for home in homes.values():
            home.mkdir()
        demo = Process(top, "demo", "demo", "--broker-only", "--topics", "20", "--namespaces", "1")
        try:
            broker = demo.found(r"(pulsar://\S+:\d+)")
            settings = {"defaults": default_settings, "everything": all_settings}
            tokens = {"defaults": "", "everything": token()}
            return {name: Seen(home, broker, settings[name](home), tokens[name]).themes for name, home in homes.items()}
        finally:
            demo.end()
