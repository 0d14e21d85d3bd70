"""Owns how each server of the ladder is brought here, configured and started. Measures nothing."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks.ladder.processes import CACHE, CHECKOUT, LADDER, Child, LadderError, free_ports
from benchmarks.ladder.rows import ROWS, Row
from benchmarks.ladder.secured import Secured
from benchmarks.ladder.tokens import Tokens

CRATE = LADDER / "loadgen"
LOADGEN = CACHE / "loadgen" / "release" / "loadgen"
JAVA_HOME = CACHE / "peers" / "apache-pulsar-4.0.8"
LIMITER = CACHE / "peers" / "limiter"
STAND_IN = CACHE / "peers" / "stand-in"
RUN = CACHE / "run"
# A checkout of an earlier version: its code is run for rows that say so, side by side with today's.
BEFORE = "LADDER_BEFORE"

# As the peer's own start script has them, but for the memory, which the ladder fixes.
JAVA_OPTIONS = (
    "-Xmx512m",
    "-XX:MaxDirectMemorySize=512m",
    "-Dio.netty.leakDetectionLevel=disabled",
    "-Dio.netty.recycler.maxCapacityPerThread=4096",
    "-Dio.netty.tryReflectionSetAccessible=true",
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-opens=java.base/jdk.internal.misc=ALL-UNNAMED",
    "--add-opens=java.base/sun.net=ALL-UNNAMED",
    "--add-opens=java.management/sun.management=ALL-UNNAMED",
    "--add-opens=jdk.management/com.sun.management.internal=ALL-UNNAMED",
)


@dataclass
class Running:
    """A server that answers on a port of 127.0.0.1."""

    child: Child
    port: int
    ready_seconds: float
    web_port: int = 0
    tls_port: int = 0


@dataclass(frozen=True)
class Place:
    """Where a server is to listen, what is behind it, and the TLS of both sides and the clients' tokens, if any."""

    broker: Running
    port: int
    web_port: int
    tls_port: int
    secured: Secured | None
    tokens: Tokens | None = None


def build_loadgen() -> None:
    """Build load generator and fake broker; `LadderError` says how if that cannot be done."""
    if shutil.which("cargo") is None:
        raise LadderError("got no cargo, expected a Rust toolchain: apt-get install -y cargo")
    environment = os.environ | {"CARGO_TARGET_DIR": str(CACHE / "loadgen")}
    command = ["cargo", "build", "--quiet", "--release", "--locked"]
    subprocess.run(command, cwd=CRATE, env=environment, check=True)


def fetch_java_proxy() -> None:
    """Resolve the Java proxy by Maven, once; 235 MB."""
    if (JAVA_HOME / "lib").is_dir():
        return
    if shutil.which("mvn") is None:
        raise LadderError("got no mvn, expected Maven for row 06: apt-get install -y maven")
    _maven("process-resources")


def build_stand_in() -> str:
    """Build the Java proxy with a later release's limiter; return its class path, in which 4.0.8 comes first."""
    fetch_java_proxy()
    if not list(LIMITER.glob("*.jar")):
        _maven("dependency:copy@limiter")
    jars = f"{JAVA_HOME / 'lib'}/*{os.pathsep}{LIMITER}/*"
    source = LADDER / "peers" / "Pip442Proxy.java"
    subprocess.run(["javac", "-nowarn", "-d", str(STAND_IN), "-cp", jars, str(source)], check=True)
    return f"{STAND_IN}{os.pathsep}{jars}"


def _maven(goal: str) -> None:
    subprocess.run(["mvn", "-q", "-B", "-f", str(LADDER / "peers" / "pom.xml"), goal], check=True)


def start_broker(
    data: str,
    *,
    topics: int = 10_000,
    name: str = "broker",
    options: tuple[str, ...] = (),
    secured: Secured | None = None,
) -> Running:
    """Start the fake broker with topic names of 100 bytes; it chooses its port itself, and a second one for TLS."""
    common = ["--data", data, "--topics", str(topics), "--topic-bytes", "100"]
    tls = secured.broker_options() if secured else []
    child = Child(name, [str(LOADGEN), "broker", *common, *options, *tls])
    deadline = time.monotonic() + 10
    while not (line := child.log.read_text()).endswith("\n"):
        if child.process.poll() is not None or time.monotonic() > deadline:
            child.end()
            raise LadderError(f"the fake broker did not start\n{child.tail()}")
        time.sleep(0.01)
    words = line.split()  # port N, or port N tls M
    return Running(child, int(words[1]), 0.0, tls_port=int(words[3]) if secured else 0)


def start(
    row_name: str,
    broker: Running,
    settings: tuple[tuple[str, str], ...] = (),
    secured: Secured | None = None,
    tokens: Tokens | None = None,
) -> Running:
    """Start the server of a row in front of the broker and wait until it answers; the settings are for our own."""
    row = ROWS[row_name]
    port, web_port, tls_port = free_ports(3)
    place = Place(broker, port, web_port, tls_port, secured, tokens)
    name = f"row-{row_name}"
    if row.server == "none":
        return broker
    if row.server == "ours":
        child = _start_ours(name, row, settings, place)
    elif row.server == "java":
        child = _start_java(name, row, place)
    elif row.server == "bare":
        child = _start_bare(name, row, place)
    else:
        child = _start_haproxy(name, row, place)
    asked = (place.tls_port, 60.0, secured.context()) if secured else (place.port, 60.0)
    try:
        return Running(child, place.port, child.wait_ready(*asked), place.web_port, place.tls_port)
    except BaseException:
        child.end()
        raise


def missing(row_name: str) -> str:
    """Return why a row cannot be run here and what would change that; empty if it can."""
    server = ROWS[row_name].server
    if server == "ours" and not _console_script().exists():
        return "our proxy is not installed: pip install -e . in the checkout's .venv"
    if ROWS[row_name].before and not (_before() / "proxy").is_dir():
        return f"no earlier version: {BEFORE}=CHECKOUT"
    if server == "java" and shutil.which("java") is None:
        return "no java: apt-get install -y openjdk-17-jre-headless"
    if ROWS[row_name].stand_in and shutil.which("javac") is None:
        return "no javac: apt-get install -y openjdk-17-jdk-headless"
    if server == "haproxy" and shutil.which("haproxy") is None:
        return "no haproxy: apt-get install -y haproxy"
    return ""


def _before() -> Path:
    return Path(os.environ.get(BEFORE) or os.devnull).resolve()


def _console_script() -> Path:
    beside = Path(sys.executable).parent / "pulsar-proxy"
    return beside if beside.exists() else CHECKOUT / ".venv" / "bin" / "pulsar-proxy"


def _write(name: str, lines: list[str]) -> str:
    RUN.mkdir(parents=True, exist_ok=True)
    path = RUN / name
    path.write_text("\n".join(lines) + "\n")
    return str(path)


def _proxy_conf(place: Place) -> list[str]:
    lines = [
        f"brokerServiceURL=pulsar://127.0.0.1:{place.broker.port}",
        f"brokerWebServiceURL=http://127.0.0.1:{place.broker.port}",
        f"servicePort={place.port}",
        f"webServicePort={place.web_port}",
        "bindAddress=127.0.0.1",
        "brokerProxyAllowedTargetPorts=*",
        "clusterName=ladder",
    ]
    lines += place.tokens.proxy_lines() if place.tokens else []
    return lines + (place.secured.proxy_lines(place.tls_port) if place.secured else [])


def _start_ours(name: str, row: Row, settings: tuple[tuple[str, str], ...], place: Place) -> Child:
    # Nothing spreads new clients here that would have to hear of the end first.
    lines = [*_proxy_conf(place), "shutdownPreDrainMillis=0"]
    known = {"lists": str(RUN.resolve() / f"{name}-lists")}
    lines += [f"{key}={value.format_map(known)}" for key, value in dict(row.settings + settings).items()]
    # The code of one checkout, whichever the environment was made for (-P: not that of the working directory). An
    # earlier version has the native extension that fits it in an environment of its own.
    checkout = _before() if row.before else CHECKOUT
    own = checkout / ".venv" / "bin" / "python"
    python = own if row.before and own.exists() else _console_script().with_name("python")
    command = [str(python), "-P", "-m", "proxy", "serve", "--config", _write(f"{name}.conf", lines)]
    # An installation has its modules compiled; a shell that forbids that would have changed ones compiled each time.
    inherited = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    return Child(name, command, inherited | {"PYTHONPATH": str(checkout)})


def _start_java(name: str, row: Row, place: Place) -> Child:
    lines = [*_proxy_conf(place), "advertisedAddress=127.0.0.1"]
    log4j = f"-Dlog4j.configurationFile={LADDER / 'peers' / 'log4j2.xml'}"
    config, options = _write(f"{name}.conf", lines), ["java", *JAVA_OPTIONS, log4j, "-cp"]
    package = "org.apache.pulsar.proxy.server"
    if row.stand_in:
        return Child(name, [*options, build_stand_in(), f"{package}.Pip442Proxy", config])
    fetch_java_proxy()
    command = [*options, f"{JAVA_HOME / 'lib'}/*", f"{package}.ProxyServiceStarter", "--config", config]
    return Child(name, command)


def _start_bare(name: str, row: Row, place: Place) -> Child:
    port = place.tls_port if place.secured else place.port
    command = [str(LOADGEN), "bare", "--broker", f"127.0.0.1:{place.broker.port}", "--port", str(port)]
    options = [*(["--splice"] if row.splice else []), *(place.secured.broker_options() if place.secured else [])]
    return Child(name, [*command, "--threads", "1", *options])


def _start_haproxy(name: str, row: Row, place: Place) -> Child:
    return Child(name, ["haproxy", "-db", "-f", _write(f"{name}.cfg", _haproxy_lines(row, place))])


def _haproxy_lines(row: Row, place: Place) -> list[str]:
    secured = place.secured
    port = place.tls_port if secured else place.port
    return [
        "global",
        "  maxconn 9000",
        # As many pipes as HAProxy would count for maxconn would be more files than a process may have.
        *(["  tune.bufsize 65536", "  maxpipes 512"] if row.splice else []),
        "defaults",
        "  mode tcp",
        "  maxconn 9000",
        *(["  option splice-auto"] if row.splice else []),
        "  timeout connect 10s",
        "  timeout client 600s",
        "  timeout server 600s",
        "listen relay",
        f"  bind 127.0.0.1:{port} backlog 4096" + (secured.haproxy_bind() if secured else ""),
        f"  server broker 127.0.0.1:{place.broker.port}",
    ]
