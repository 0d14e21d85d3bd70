"""Observe two running proxies before the broker of `demo`, one with defaults and one with every feature enabled.

Both serve the same clients: one asks for lists, one is relayed and watches topics, one is refused.
"""

import base64
import contextlib
import gzip
import http.client
import json
import re
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
from joserfc import jwk, jwt

from protocol.pb import PulsarApi_pb2 as pb
from scripts.generated import ROOT
from scripts.surface.commands import PROXY, ending, environment
from scripts.surface.text import merged, plain, plain_values, shape

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
DEFAULTS: Final = """\
servicePort=0
webServicePort=0
bindAddress=127.0.0.1
clusterName=surface
brokerProxyAllowedTargetPorts=*
controlSocketPath={home}/control.sock
shutdownPreDrainMillis=0
shutdownDrainMillis=500
"""
# Every family of metrics is on: TLS, tokens, event log, admin port, statistics.
EVERYTHING: Final = f"""{DEFAULTS}\
servicePortTls=0
webServicePortTls=0
tlsCertificateFilePath={{home}}/cert.pem
tlsKeyFilePath={{home}}/key.pem
authenticationEnabled=true
authorizationEnabled=true
authenticationProviders=org.apache.pulsar.broker.authentication.AuthenticationProviderToken
tokenSecretKey=data:;base64,{base64.b64encode(SECRET).decode()}
superUserRoles=surface
eventLogDirectory={{home}}/events
eventLogIdentities=plain
proxyLogLevel=2
adminApiAddress=127.0.0.1:{{free_port}}
adminApiTokenFilePath={{home}}/admin.token
logLevel=debug
httpRequestsLimitEnabled=true
topicListFairness=namespace
"""
_SAMPLE: Final = re.compile(r"^(\w+)(?:\{(.*)\})? \S+$", re.MULTILINE)
_LABEL: Final = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
# Labels whose values are of this machine, not of the code.
_OF_THE_MACHINE: Final = frozenset({"version", "python"})


class Process(contextlib.AbstractContextManager["Process"]):
    """A command of the proxy that runs until the block ends; its output goes to a file."""

    def __init__(self, home: Path, *arguments: str) -> None:
        self._output = home / "output"
        with self._output.open("wb") as output:
            self.child = subprocess.Popen(
                [*PROXY, *arguments], cwd=ROOT, env=environment(home), stdin=subprocess.DEVNULL, stdout=output,
                stderr=subprocess.STDOUT,
            )  # fmt: skip

    def __exit__(self, *_: object) -> None:
        self.child.terminate()
        try:
            self.child.wait(PATIENCE_SECONDS)
        finally:
            self.child.kill()

    def said(self) -> str:
        """Return all output so far."""
        return self._output.read_text(encoding="utf-8")

    def found(self, pattern: str) -> str:
        """Wait until the output has a pattern, and return its group."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while (match := re.search(pattern, self.said())) is None:
            if self.child.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"no {pattern!r} in the output:\n{self.said()}")
            time.sleep(0.02)
        return match[1]


class Client(contextlib.AbstractContextManager["Client"]):
    """A Pulsar client of a few commands, over a blocking socket."""

    def __init__(self, port: int, connect: Mapping[str, Any]) -> None:
        self._file = socket.create_connection((HOST, port), PATIENCE_SECONDS).makefile("rwb")
        self.ask("CONNECT", connect={"client_version": "surface", "protocol_version": 21, **connect})

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def ask(self, kind: str, **command: Mapping[str, Any]) -> None:
        """Send one command and wait for the next that comes, or for the end."""
        sent = pb.BaseCommand(type=pb.BaseCommand.Type.Value(kind), **command).SerializeToString()
        self._file.write((len(sent) + 4).to_bytes(4, "big") + len(sent).to_bytes(4, "big") + sent)
        self._file.flush()
        self._file.read(int.from_bytes(self._file.read(4), "big"))


class ControlSocket(http.client.HTTPConnection):
    """HTTP over the control socket, whose path stands for the host."""

    def connect(self) -> None:
        """Connect to the path."""
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(PATIENCE_SECONDS)
        self.sock.connect(self.host)


class Seen:
    """A proxy with clients, and the themes observed on it."""

    def __init__(self, home: Path, broker: str, settings: str, token: str) -> None:
        self.home, self.token, self.themes = home, token, dict[str, Any]()
        self.places = {str(home): "HOME", socket.gethostname(): "MACHINE"}
        (home / "proxy.conf").write_text(f"{settings}brokerServiceURL={broker}\n")
        with Process(home, "serve", "--config", str(home / "proxy.conf")) as proxy:
            self.web_port = int(proxy.found(r'"web_port":(\d+)'))
            with self._clients(int(proxy.found(r'"port":(\d+)')), broker):
                self._look()
                # The last request was to drain; clients that stay make the end of the drain the same each time.
                self.themes["commands"]["serve, then drain"] = proxy.child.wait(PATIENCE_SECONDS)
        self.themes["log"] = log_lines(proxy.said())
        self.themes["events"] = events_in(home / "events")

    @contextlib.contextmanager
    def _clients(self, port: int, broker: str) -> Iterator[None]:
        connect = {"auth_method_name": "token", "auth_data": self.token.encode()} if self.token else {}
        bad = {"proxy_to_broker_url": "elsewhere:1", **connect, "auth_data": b"bad"}
        relay = {**connect, "proxy_to_broker_url": broker.removeprefix("pulsar://")}
        topic = f"persistent://{NAMESPACE}/t"
        watch = {"request_id": 1, "watcher_id": 1, "namespace": NAMESPACE, "topics_pattern": ".*"}
        with Client(port, connect) as lists, Client(port, relay) as relayed, Client(port, bad):
            for number, namespace in ((1, NAMESPACE), (2, "no/such")):
                request = {"request_id": number, "namespace": namespace}
                lists.ask("GET_TOPICS_OF_NAMESPACE", getTopicsOfNamespace=request)
            lists.ask("LOOKUP", lookupTopic={"request_id": 3, "topic": topic})
            lists.ask("PARTITIONED_METADATA", partitionMetadata={"request_id": 4, "topic": topic})
            relayed.ask("WATCH_TOPIC_LIST", watchTopicList=watch)
            yield

    def _look(self) -> None:
        callers = {"nobody": "", "token": self.token} if self.token else {"nobody": ""}
        pages = {f"{path} {who}": self._web(path, token) for path in PAGES for who, token in callers.items()}
        self.themes["web"] = {name: self._shown(*answer) for name, answer in pages.items()}
        # Rates need two looks of the proxy at itself, a second apart.
        deadline = time.monotonic() + PATIENCE_SECONDS
        while '"per_second": {}' in json.dumps(self._admin("GET", "/v1/top")[2]) and time.monotonic() < deadline:
            time.sleep(0.1)
        known = str(self._admin("GET", "/v1/connections")[2]["connections"][0]["id"])
        routes = self._admin("GET", "/v1")[2]["routes"]
        paths = [route["path"] for route in routes if route["method"] == "GET"]
        asked = {f"GET {path}": self._admin("GET", path.replace("{id}", known)) for path in paths}
        self.themes["metrics"] = families(self._web("/metrics", self.token)[2])
        config = ("--config", str(self.home / "proxy.conf"))
        self.themes["commands"] = {each: ending(self.home, (*each.split(), *config)) for each in COMMANDS}
        asked |= {f"{each[0]} {each[1]} {json.dumps(each[2])}": self._admin(*each) for each in CHANGES}
        self.themes["admin"] = {name: self._shown(*answer) for name, answer in asked.items()}

    def _web(self, path: str, token: str) -> tuple[int, Any, Any]:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        connection = http.client.HTTPConnection(HOST, self.web_port, timeout=PATIENCE_SECONDS)
        return _asked(connection, "GET", path, None, headers)

    def _admin(self, method: str, path: str, body: Any = None) -> tuple[int, Any, Any]:
        return _asked(ControlSocket(str(self.home / "control.sock")), method, path, body, {})

    def _shown(self, status: int, headers: Mapping[str, str], body: Any) -> dict[str, Any]:
        if isinstance(body, str):
            # The samples of a scrape are in the theme of metrics.
            body = "metrics" if body.startswith("# HELP") else plain(body, self.places)
        else:
            # Values of keys are frozen, of anything else only names and types.
            is_config = isinstance(body, dict) and "http_reverse_proxies" in body
            body = plain_values(body, self.places) if is_config else shape(body)
        names = sorted(name.lower() for name in headers)
        return {"status": status, "type": headers.get("Content-Type"), "headers": names, "body": body}


def _asked(
    connection: http.client.HTTPConnection, method: str, path: str, body: Any, headers: Mapping[str, str]
) -> tuple[int, Any, Any]:
    """Return status, headers and body (a document, or a text) of one answer."""
    with contextlib.closing(connection):
        connection.request(method, path, None if body is None else json.dumps(body), dict(headers))
        answer = connection.getresponse()
        text = answer.read().decode()
    is_json = "json" in answer.headers.get("Content-Type", "")
    return answer.status, answer.headers, json.loads(text) if is_json and text else text


def families(text: str) -> dict[str, Any]:
    """Return the metrics of a scrape: the type of each family, and for each sample its labels with their values."""
    samples: dict[str, set[str]] = {}
    for name, labels in _SAMPLE.findall(text):
        pairs = ((label, "*" if label in _OF_THE_MACHINE else plain(value)) for label, value in _LABEL.findall(labels))
        samples.setdefault(name, set()).add(", ".join(f"{label}={value}" for label, value in pairs))
    return {"types": dict(re.findall(r"^# TYPE (\w+) (\w+)$", text, re.MULTILINE)), "samples": samples}


def log_lines(output: str) -> dict[str, Any]:
    """Return the levels and the fields of each event that was logged."""
    found: dict[str, Any] = {}
    for line in re.findall(r"^\{.*\}$", output, re.MULTILINE):
        fields = json.loads(line)
        known = found.setdefault(plain(fields["event"]), {"levels": set(), "fields": set()})
        known["levels"].add(fields["level"])
        known["fields"].update(fields)
    return found


def events_in(directory: Path) -> dict[str, Any]:
    """Return the fields of the events that were written, by kind."""
    found: dict[str, list[Any]] = {}
    for path in sorted(directory.rglob("*.gz")):
        for event in map(json.loads, gzip.decompress(path.read_bytes()).splitlines()):
            found.setdefault(event["kind"], []).append(shape(event))
    return {kind: merged(shapes) for kind, shapes in found.items()}


_ONCE: Final = threading.Lock()


def part(theme: str) -> dict[str, Any]:
    """Return one theme of both proxies; they run once, whichever theme is asked for first."""
    with _ONCE:
        return {name: themes[theme] for name, themes in _themes().items()}


@cache
def _themes() -> dict[str, dict[str, Any]]:
    token = jwt.encode({"alg": "HS256"}, {"sub": "surface"}, jwk.OctKey.import_key(SECRET))
    found = {}
    with (
        tempfile.TemporaryDirectory(prefix="surface-") as top,
        Process(Path(top), "demo", "--broker-only", "--topics", "20", "--namespaces", "1") as demo,
    ):
        broker = demo.found(r"(pulsar://\S+:\d+)")
        for name, settings, sent in (("defaults", DEFAULTS, ""), ("everything", EVERYTHING, token)):
            home = Path(top, name)
            home.mkdir()
            _write_files(home)
            with socket.create_server((HOST, 0)) as free:
                port = free.getsockname()[1]
            found[name] = Seen(home, broker, settings.format(home=home, free_port=port), sent).themes
    return found


def _write_files(home: Path) -> None:
    certificate = trustme.CA().issue_cert("localhost", HOST)
    certificate.private_key_pem.write_to_path(home / "key.pem")
    certificate.cert_chain_pems[0].write_to_path(home / "cert.pem")
    (home / "admin.token").write_text("a-token-for-the-admin-api\n")
    (home / "admin.token").chmod(0o600)
