"""The image, really built, and the proxy started from its root: read-only, without rights, without a shell.

Rule: what is run is what the image says (Entrypoint, Cmd, Env, User, Healthcheck), never what this test knows.
"""

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from proxy.core.version import VERSION
from scripts.build_image import Images, Tools
from scripts.generated import ROOT
from scripts.image_base import base_from
from tests.support.brokers.embedded.broker import EmbeddedBroker
from tests.support.brokers.embedded.topics import GeneratedTopics
from tests.support.clients.async_client import LOOPBACK, AsyncClient, eventually
from tests.support.patience import patient
from tests.support.programs import ran
from tests.support.tools import tools, unusable

pytestmark = pytest.mark.timeout(900)

SHELLS = ("sh", "dash", "bash")
# Its own mounts, then the same process goes on as the image's: its id is the proxy's.
ENTER = """
set -e
mount --bind "$ROOT_OF_IMAGE" "$ROOT_OF_IMAGE"
mount --rbind /proc "$ROOT_OF_IMAGE/proc"
mount -t tmpfs -o mode=1777 tmpfs "$ROOT_OF_IMAGE/tmp"
for shell in $SHELLS; do mount --bind /dev/null "$ROOT_OF_IMAGE/usr/bin/$shell"; done
mount -o remount,ro,bind "$ROOT_OF_IMAGE"
exec chroot --userspec="$USER_OF_IMAGE" "$ROOT_OF_IMAGE" "$@"
"""


@dataclass(frozen=True)
class Image:
    """A built image: its root, and what it says of itself."""

    root: Path
    configuration: dict[str, Any]

    @property
    def environment(self) -> dict[str, str]:
        return dict(setting.split("=", 1) for setting in self.configuration["Env"])


@pytest.fixture(scope="module")
def image() -> Iterator[Image]:
    buildah, debootstrap, _ = tools("buildah", "debootstrap", "unshare")
    if os.geteuid() != 0:
        unusable("debootstrap", "debootstrap needs root")
    images = Images(ROOT / ".cache" / "image", Tools(buildah, debootstrap, sys.executable))
    with images.owned():
        name = images.build(base_from("either"))
        with images.root_of(name) as root:
            yield Image(root, images.configuration(name))


@dataclass
class Contained:
    """A proxy that runs from an image's root."""

    image: Image
    process: "subprocess.Popen[bytes]"
    environment: dict[str, str]
    log: Path

    def line(self, key: str) -> dict[str, Any] | None:
        assert self.process.poll() is None, self.log.read_text()
        lines = [json.loads(line) for line in self.log.read_text().splitlines() if line.endswith("}")]
        return next((line for line in lines if key in line), None)

    async def said(self, key: str) -> Any:
        await eventually(lambda: self.line(key), f"a log line with {key}")
        line = self.line(key)
        assert line is not None
        return line[key]

    def run(self, *command: str) -> "subprocess.CompletedProcess[str]":
        """Run a command beside the proxy, as an engine's `exec` and its health checks do."""
        user, _, group = self.image.configuration["User"].partition(":")
        entering = ["nsenter", f"--target={self.process.pid}", "--mount", "--root", "--setuid", user, "--setgid", group]
        return ran([*entering, *command], env=self.environment)


@contextmanager
def started(image: Image, directory: Path, **keys: object) -> Iterator[Contained]:
    said = image.configuration
    environment = image.environment | {key: str(value) for key, value in keys.items()}
    entering = {"ROOT_OF_IMAGE": str(image.root), "USER_OF_IMAGE": said["User"], "SHELLS": " ".join(SHELLS)}
    log, unshare, bash = directory / "proxy.log", shutil.which("unshare"), shutil.which("bash")
    assert unshare is not None
    assert bash is not None
    with log.open("wb") as output:
        process = subprocess.Popen(
            [unshare, "--mount", bash, "-c", ENTER, "enter", *said["Entrypoint"], *said["Cmd"]],
            env=environment | entering | {"PATH": f"{environment['PATH']}:/usr/sbin:/sbin"},
            stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
        )  # fmt: skip
    try:
        yield Contained(image, process, environment, log)
    finally:
        process.kill()
        process.wait(patient(30))


def test_it_says_how_it_is_run_and_what_it_is(image: Image) -> None:
    said = image.configuration
    assert (said["Entrypoint"], said["Cmd"], said["User"]) == (["pulsar-proxy"], ["serve"], "10001:10001")
    # Through a shell the proxy would not be process 1, and would hear of no signal.
    assert said["Healthcheck"]["Test"] == ["CMD", "pulsar-proxy", "health"]
    assert said["StopSignal"] == "SIGTERM"
    assert set(said["ExposedPorts"]) == {"6650/tcp", "6651/tcp", "8080/tcp", "8443/tcp"}
    labels = {name.removeprefix("org.opencontainers.image."): text for name, text in said["Labels"].items()}
    assert labels["version"] == VERSION
    assert labels["licenses"] == "Apache-2.0"
    assert len(labels["created"]) == len("2026-01-01T00:00:00Z")
    assert "unknown" not in labels.values()
    assert "MALLOC_ARENA_MAX" in image.environment


def test_it_holds_the_proxy_compiled_and_nothing_of_its_making(image: Image) -> None:
    home = image.root / "opt/pulsar-proxy"
    [packages] = home.glob("lib/python3.*/site-packages")
    sources = {path.with_suffix("") for path in (packages / "proxy").rglob("*.py")}
    assert packages / "proxy/cli/serve" in sources
    compiled = (packages / "proxy").rglob("__pycache__/*.pyc")
    assert {path.parents[1] / path.name.partition(".")[0] for path in compiled} == sources
    for shared in (
        "man/man1/pulsar-proxy.1",
        "man/man5/pulsar-proxy.conf.5",
        "bash-completion/completions/pulsar-proxy",
    ):
        assert (home / "share" / shared).is_file(), shared
    assert not (packages / "pip").exists()
    assert not (image.root / "etc/pip.conf").exists()
    assert not (image.root / "build").exists()
    assert not (image.root / "wheels").exists()


def test_it_holds_the_native_extension(image: Image) -> None:
    [packages] = (image.root / "opt/pulsar-proxy").glob("lib/python3.*/site-packages")
    assert len(list(packages.glob("pulsar_proxy_native/*.so"))) == 1
    assert not (image.root / "native").exists()


async def test_the_proxy_serves_from_a_read_only_root_without_rights_and_without_a_shell(
    image: Image, tmp_path: Path
) -> None:
    await serves_and_ends(image, tmp_path)


async def serves_and_ends(
    image: Image, directory: Path, meanwhile: Callable[[Contained], None] = lambda proxy: None
) -> None:
    keys = {"bindAddress": LOOPBACK, "servicePort": 0, "webServicePort": 0, "shutdownPreDrainMillis": 0}
    async with EmbeddedBroker(GeneratedTopics(1, 10, 40)) as broker:
        with started(image, directory, brokerServiceURL=broker.service_url, **keys) as proxy:
            client = await AsyncClient.open(await proxy.said("port"))
            try:
                await client.connect()
                await client.ping()
            finally:
                client.close()
            # With a port that is known before, as deployments have it, the image's own check finds the proxy.
            proxy.environment["webServicePort"] = str(await proxy.said("web_port"))
            await asyncio.to_thread(look_from_inside, proxy)
            await asyncio.to_thread(meanwhile, proxy)
            os.kill(proxy.process.pid, signal.SIGTERM)
            assert await asyncio.to_thread(proxy.process.wait, patient(60)) == 0, proxy.log.read_text()


def look_from_inside(proxy: Contained) -> None:
    status = Path(f"/proc/{proxy.process.pid}/status").read_text().split()
    assert status[status.index("Uid:") + 1] == "10001"
    assert proxy.run("touch", "/opt/of-mine").stderr.rstrip().endswith("Read-only file system")
    assert proxy.run("sh", "-c", "true").returncode != 0
    check = proxy.run(*proxy.image.configuration["Healthcheck"]["Test"][1:])
    assert (check.stdout, check.stderr, check.returncode) == ("ready\n", "", 0)
