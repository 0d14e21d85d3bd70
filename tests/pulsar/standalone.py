"""Owns how a standalone Pulsar is brought up here: its class path by Maven, or its image by Docker.

Obeys one rule: everything but the cached class path lives in a directory the caller gives. Knows nothing of
the proxy.
"""

import fcntl
import hashlib
import os
import re
import shutil
import signal
import string
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Final

from tests.pulsar.admin import Admin
from tests.pulsar.process import ChildProcess
from tests.support.jvm import QUICK
from tests.support.sockets.ports import free_ports
from tests.support.tools import unusable

PULSAR_VERSION: Final = "4.2.4"
NAMESPACE: Final = "public/default"
JAVA_VERSION: Final = 17

_HERE: Final = Path(__file__).parent
_BROKER: Final = _HERE / "broker"
BROKER_POM: Final = _BROKER / "pom.xml"
CACHE: Final = _HERE.parent.parent / ".cache" / "pulsar"
_READY_SECONDS: Final = 120.0
_STOP_SECONDS: Final = 20.0
_JAVAS: Final = Path("/usr/lib/jvm")
_JAVA_OPTIONS: Final = (
    "-Xmx512m",
    "-XX:MaxDirectMemorySize=512m",
    "-XX:+ExitOnOutOfMemoryError",
    *QUICK,
)
# The packages that Pulsar's own start script opens (bin/pulsar of 4.2).
_OPENED: Final = (
    "java.base/java.io",
    "java.base/java.lang",
    "java.base/java.nio",
    "java.base/java.util.zip",
    "java.base/jdk.internal.loader",
    "java.base/jdk.internal.misc",
    "java.base/jdk.internal.platform",
    "java.base/sun.net",
    "java.management/sun.management",
    "jdk.management/com.sun.management.internal",
)
_IMAGE_DATA: Final = Path("/pulsar/data")
_STANDALONE_OPTIONS: Final = ("--no-functions-worker", "-nss", "--advertised-address", "127.0.0.1")


class MissingToolError(Exception):
    """Say in one line which tool is missing and what to install."""


@dataclass(frozen=True, slots=True)
class Kind:
    """Say which broker to run: its release, where its jars come from, and keys besides those of standalone.conf.

    `admin_token` is what the admin interface asks for ("" if it asks for nothing), `files` the directory that the keys
    speak of, `java_version` the oldest Java that runs the jars.
    """

    version: str = PULSAR_VERSION
    class_path: Callable[[], str] = lambda: class_path()
    java_version: int = JAVA_VERSION
    keys: Mapping[str, str] = field(default_factory=dict)
    admin_token: str = ""
    files: Path | None = None


@dataclass(frozen=True, slots=True)
class Broker:
    """Say where a broker listens."""

    service_url: str
    admin_url: str
    origin: str


DEFAULT: Final = Kind()


def missing_for_maven() -> str | None:
    """Name what keeps Maven from being used, None if nothing does."""
    java = shutil.which("java")
    if java is None:
        return "java not found"
    version = _java_version(java)
    if version < JAVA_VERSION:
        return f"java {version} found"
    return next((f"{name} not found" for name in ("javac", "mvn") if shutil.which(name) is None), None)


def missing_for_docker() -> str | None:
    """Name what keeps Docker from being used, None if nothing does."""
    if shutil.which("docker") is None:
        return "docker not found"
    done = subprocess.run(["docker", "info"], stdin=subprocess.DEVNULL, capture_output=True, check=False)
    return None if done.returncode == 0 else "docker daemon not running"


def java_of(version: int) -> str:
    """Find a Java of this version or a newer one; raises MissingToolError.

    The one on the PATH is taken if it will do, then those of JAVA_HOME and its like (CI has JAVA_HOME_21_X64).
    """
    homes = [home for name, home in sorted(os.environ.items()) if name.startswith("JAVA_HOME")]
    places = [shutil.which("java"), *(f"{home}/bin/java" for home in [*homes, *sorted(map(str, _JAVAS.glob("*")))])]
    found = {java: _java_version(java) for java in places if java is not None and Path(java).is_file()}
    for java, its_version in found.items():
        if its_version >= version:
            return java
    here = ", ".join(str(its_version) for its_version in sorted(set(found.values()))) or "none"
    raise MissingToolError(f"java >= {version} is needed (on the PATH, by JAVA_HOME or in {_JAVAS}), found: {here}")


@cache
def _java_version(java: str) -> int:
    done = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)
    match = re.search(r'version "(\d+)', done.stderr)
    return int(match.group(1)) if match else 0


def class_path(pom: Path = BROKER_POM, *copying: str) -> str:
    """Resolve a class path, the broker's by default, by Maven, once per content of pom.xml; raises MissingToolError.

    `copying` are goals that put more jars into `outputDirectory`: those come first.
    """
    cached = CACHE / hashlib.sha256(pom.read_bytes()).hexdigest()[:16] / "classpath.txt"
    if cached.exists():
        if all(Path(jar).exists() for jar in cached.read_text().split(os.pathsep)):
            return cached.read_text()
        cached.unlink(missing_ok=True)
    cached.parent.mkdir(parents=True, exist_ok=True)
    # Two Mavens at a time would write the same repository: the second finds what the first has brought.
    with (CACHE / "maven.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not cached.exists():
            _resolve(pom, cached, copying)
    return cached.read_text()


def _resolve(pom: Path, cached: Path, copying: Sequence[str]) -> None:
    # Under another name until it is whole.
    fresh, copied = cached.with_suffix(".fresh"), cached.parent / "jars"
    goals = ["dependency:build-classpath", f"-Dmdep.outputFile={fresh}", *copying, f"-DoutputDirectory={copied}"]
    done = subprocess.run(
        ["mvn", "-q", "-B", "-f", str(pom), *goals],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode != 0 or not fresh.exists():
        raise MissingToolError(f"mvn could not resolve {pom.relative_to(_HERE)}: {_first_error(done.stdout)}")
    fresh.write_text(os.pathsep.join([*map(str, sorted(copied.glob("*.jar"))), fresh.read_text()]))
    fresh.replace(cached)


def _first_error(output: str) -> str:
    errors = [line for line in output.splitlines() if "ERROR" in line] or output.splitlines() or ["no output"]
    return errors[0]


def _write_config(directory: Path, service_port: int, web_port: int, packages: Path, keys: Mapping[str, str]) -> Path:
    template = string.Template((_BROKER / "standalone.conf").read_text())
    config = directory / "standalone.conf"
    more = "".join(f"{key}={value}\n" for key, value in keys.items())
    filled = template.substitute(service_port=service_port, web_port=web_port, packages=packages)
    config.write_text(filled + more)
    # The image's user is not ours.
    config.chmod(0o644)
    return config


def _java_command(java: str, directory: Path, config: Path, jars: str) -> list[str]:
    command = [java, *_JAVA_OPTIONS]
    command += [f"--add-opens={package}=ALL-UNNAMED" for package in _OPENED]
    command += [f"-Dlog4j2.configurationFile={_BROKER / 'log4j2.xml'}", "-cp", jars]
    command += ["org.apache.pulsar.PulsarStandaloneStarter", "-c", str(config), *_STANDALONE_OPTIONS]
    command += ["--metadata-dir", str(directory / "metadata")]
    return [*command, "--bookkeeper-dir", str(directory / "bookkeeper")]


def _docker_command(directory: Path, config: Path, kind: Kind) -> list[str]:
    inside = "/pulsar/conf/standalone-of-tests.conf"
    # The host's network: a lookup answers with 127.0.0.1 and the port that the broker itself listens on. As root: the
    # image's user may not read what is the tests' alone.
    command = ["docker", "run", "--rm", "--network", "host", "--user", "0", "-v", f"{config}:{inside}:ro"]
    command += ["-v", f"{directory / 'data'}:{_IMAGE_DATA}"]
    if kind.files is not None:
        command += ["-v", f"{kind.files}:{kind.files}:ro"]
    command += ["-e", f"PULSAR_STANDALONE_CONF={inside}", "-e", f"PULSAR_MEM={_JAVA_OPTIONS[0]}"]
    return [*command, f"apachepulsar/pulsar:{kind.version}", "bin/pulsar", "standalone", *_STANDALONE_OPTIONS]


class Standalone:
    """A standalone whose ports and data are its own for good: it may be stopped and started again."""

    def __init__(self, directory: Path, by_docker: bool, kind: Kind = DEFAULT) -> None:
        service_port, web_port, bookie_port = free_ports(3)
        packages = (_IMAGE_DATA if by_docker else directory) / "packages"
        config = _write_config(directory, service_port, web_port, packages, kind.keys)
        if by_docker:
            command = _docker_command(directory, config, kind)
        else:
            command = _java_command(java_of(kind.java_version), directory, config, kind.class_path())
        # A bookie knows its data by its port.
        self._command = [*command, "--bookkeeper-port", str(bookie_port)]
        origin = f"pulsar {kind.version} standalone ({'docker' if by_docker else 'maven'})"
        self.broker = Broker(f"pulsar://127.0.0.1:{service_port}", f"http://127.0.0.1:{web_port}", origin)
        self._by_docker = by_docker
        self._admin = Admin(self.broker.admin_url, kind.admin_token)
        self._log = directory / "broker.log"
        self._process: ChildProcess | None = None

    def start(self) -> None:
        """Start it and wait until it serves; raises ProcessFailedError."""
        self._process = ChildProcess(self.broker.origin, self._command, self._log)
        self._process.wait_ready(lambda: self._admin.is_serving(NAMESPACE), _READY_SECONDS)

    def ensure_running(self) -> None:
        """Raise ProcessFailedError if it has ended by itself."""
        assert self._process is not None
        self._process.ensure_running()

    def kill(self) -> None:
        """End it by SIGKILL, in the middle of all that it does."""
        self._own_process.kill()

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Stop it by SIGSTOP until the block ends: its connections stay, and nobody answers."""
        process = self._own_process
        process.send(signal.SIGSTOP)
        try:
            yield
        finally:
            process.send(signal.SIGCONT)

    @property
    def _own_process(self) -> ChildProcess:
        """Return the broker's process; with Docker the child is Docker's client, and the broker another's child."""
        if self._by_docker:
            unusable("java", "a broker in docker is no process of ours, and gets no signals")
        assert self._process is not None
        return self._process

    def stop(self) -> None:
        """End it."""
        if self._process is not None:
            self._process.stop(_STOP_SECONDS)


@contextmanager
def standalone(directory: Path, by_docker: bool, kind: Kind = DEFAULT) -> Iterator[Broker]:
    """Run a standalone in `directory` until the block ends; raises MissingToolError, ProcessFailedError."""
    made = Standalone(directory, by_docker, kind)
    try:
        made.start()
        yield made.broker
        made.ensure_running()
    finally:
        made.stop()
