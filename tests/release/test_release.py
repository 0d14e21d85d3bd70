"""What `make release` has built into dist/, each file installed into an empty place and used there.

Rule: nothing of the checkout is on the way of an installed proxy: another directory, an empty environment of variables.
Files that a release may leave out (the image, the extension, the wheelhouse) skip their test if they are not there.
"""

import gzip
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from zipfile import ZipFile

import pytest

from proxy.core.version import VERSION
from scripts.build_image import Images, Tools
from scripts.generated import ROOT
from scripts.helm.render import EXAMPLE, LIBRARY, LoadedChart
from scripts.release import record
from scripts.release.parts import OLDEST_GLIBC_MINOR
from tests.deploy.test_image import Contained, Image, serves_and_ends
from tests.helm.charts import BROKERS
from tests.support.auth.tls import PemFiles
from tests.support.patience import patient
from tests.support.tools import tools, unusable

DIST = ROOT / "dist"
# A wheel that is larger has something in it that it does not need.
MOST_WHEEL_BYTES = 2_000_000
STORM = ("--connections", "20", "--requests", "2", "--topics", "200", "--late-seconds", "0.2")
# Without what this run's own environment brings; where packages come from belongs to the machine.
KEPT = re.compile(r"HOME|LANG|TMPDIR|PIP_.*|.*_proxy|.*_PROXY|SSL_CERT_.*")


def file(pattern: str) -> Path:
    """Return the only file of the release with such a name, or skip the test."""
    found = sorted(DIST.glob(pattern))
    if not found:
        unusable("release", f"it has no {pattern}: make release ARGS=--wheelhouse makes all")
    assert len(found) == 1, found
    return found[0]


def run(command: Sequence[object], where: Path, **more: str) -> str:
    """Run a program in an empty directory, and return its output."""
    environ = {name: text for name, text in os.environ.items() if KEPT.fullmatch(name)}
    path = f"{Path(sys.executable).resolve().parent}:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
    done = subprocess.run(
        [str(word) for word in command], cwd=where, env=environ | {"PATH": path} | more,
        capture_output=True, text=True, timeout=patient(600), check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{command}\n{done.stdout[-3000:]}{done.stderr[-3000:]}"
    return done.stdout


def empty_environment(at: Path) -> Path:
    """Make an environment of Python with nothing in it, and return its directory of programs."""
    run([sys.executable, "-m", "venv", at], at.parent)
    return at / "bin"


def tls_alone(files: PemFiles) -> list[str]:
    """Give the options of a demo whose proxy has no other port for clients than that with TLS."""
    keys = {"servicePort": "", **files.server_keys}
    return [word for key, value in keys.items() for word in ("--set", f"{key}={value}")]


def holds_its_promise(programs: Path, where: Path, *, tls: bool) -> None:
    where.mkdir(exist_ok=True)
    version = run([programs / "pulsar-proxy", "--version"], where)
    assert version.startswith(f"pulsar-proxy {VERSION}\n")
    assert ("TLS: rustls " in version) == tls
    told = run([programs / "pulsar-proxy", "demo", *STORM, *(tls_alone(PemFiles.write(where)) if tls else ())], where)
    assert "The promise held: every request answered, memory within its bound." in told


@pytest.fixture(scope="module")
def released() -> Path:
    if not (DIST / record.SUMS).exists():
        pytest.fail("dist/ has no release: run make release ARGS=--wheelhouse first", pytrace=False)
    return DIST


pytestmark = [pytest.mark.timeout(1800), pytest.mark.usefixtures("released")]


def test_checksums_are_those_of_the_files_and_the_record_names_each() -> None:
    run(["sha256sum", "--check", "--strict", record.SUMS], DIST)
    made = json.loads((DIST / record.RECORD).read_text())
    subjects = {subject["name"]: subject["digest"]["sha256"] for subject in made["subject"]}
    assert subjects == {path.name: record.sha256(path) for path in record.files_of(DIST) if path.name in subjects}
    listed = {line.split()[1] for line in (DIST / record.SUMS).read_text().splitlines()}
    assert listed == {*subjects, record.RECORD}
    assert (DIST / record.NOTES).read_text() == record.notes()


def test_the_extension_s_wheel_is_stripped_and_for_the_oldest_glibc() -> None:
    wheel = file(f"pulsar_proxy_native-{VERSION}-*.whl")
    assert wheel.name.endswith(f"-cp311-abi3-manylinux_2_{OLDEST_GLIBC_MINOR}_{platform.machine()}.whl")
    with ZipFile(wheel) as archive:
        (library,) = [name for name in archive.namelist() if name.endswith(".so")]
        assert not {b".symtab", b".debug_info"} & set(archive.read(library).split(b"\0"))
    assert wheel.stat().st_size < MOST_WHEEL_BYTES


def test_the_wheels_run_the_demo_in_an_empty_environment(tmp_path: Path) -> None:
    programs = empty_environment(tmp_path / "env")
    wheel = file(f"pulsar_proxy_sidecar-{VERSION}-py3-none-any.whl")
    lock = ["--require-hashes", "-r", ROOT / "requirements/runtime.txt"]
    run([programs / "pip", "install", "--quiet", *lock], tmp_path)
    run([programs / "pip", "install", "--quiet", "--no-index", "--no-deps", wheel], tmp_path)
    holds_its_promise(programs, tmp_path / "pure", tls=False)
    native = file(f"pulsar_proxy_native-{VERSION}-*.whl")
    run([programs / "pip", "install", "--quiet", "--no-index", "--no-deps", native], tmp_path)
    holds_its_promise(programs, tmp_path / "native", tls=True)


def test_the_source_distribution_builds_the_same_wheel(tmp_path: Path) -> None:
    programs = empty_environment(tmp_path / "env")
    lock = ["--require-hashes", "-r", ROOT / "requirements/build.txt"]
    run([programs / "pip", "install", "--quiet", *lock], tmp_path)
    source = file(f"pulsar_proxy_sidecar-{VERSION}.tar.gz")
    building = ["wheel", "--quiet", "--no-index", "--no-deps", "--no-build-isolation", "--wheel-dir", tmp_path]
    epoch = json.loads((DIST / record.RECORD).read_text())["predicate"]["buildDefinition"]["internalParameters"]
    run([programs / "pip", *building, source], tmp_path, SOURCE_DATE_EPOCH=str(epoch["sourceDateEpoch"]))
    (built,) = tmp_path.glob("*.whl")
    assert record.sha256(built) == record.sha256(file(built.name))


def test_the_extension_s_source_distribution_builds_what_the_proxy_finds(tmp_path: Path) -> None:
    (cargo,) = tools("cargo")
    programs = empty_environment(tmp_path / "env")
    for name in ("native", "runtime"):
        lock = ROOT / f"requirements/{name}.txt"
        run([programs / "pip", "install", "--quiet", "--require-hashes", "-r", lock], tmp_path)
    # maturin calls cargo, and pip's build finds maturin, by PATH.
    path = f"{programs}:{Path(cargo).parent}:/usr/local/bin:/usr/bin:/bin"
    wheel = file(f"pulsar_proxy_sidecar-{VERSION}-py3-none-any.whl")
    source = file(f"pulsar_proxy_native-{VERSION}.tar.gz")
    building = ["install", "--quiet", "--no-index", "--no-deps", "--no-build-isolation"]
    run([programs / "pip", *building, wheel, source], tmp_path, PATH=path)
    holds_its_promise(programs, tmp_path / "native", tls=True)


def test_the_wheelhouse_installs_and_runs_the_demo_without_a_network(tmp_path: Path) -> None:
    unshare, ip, bash = tools("unshare", "ip", "bash")
    if os.geteuid() != 0:
        unusable("unshare", "a network of its own needs root")
    with tarfile.open(file("pulsar-proxy-wheelhouse-*.tar.gz")) as archive:
        archive.extractall(tmp_path, filter="data")
    house = tmp_path / f"pulsar-proxy-wheelhouse-{VERSION}"
    prefix = tmp_path / "env"
    # Loopback alone: there is nobody who could be asked for a package.
    offline = [unshare, "--net", bash, "-euc", f'{ip} link set lo up; exec "$@"', "offline"]
    script = (house / "INSTALL.txt").read_text()
    told = run([*offline, bash, "-euc", script], house, PREFIX=str(prefix), PYTHON=sys.executable)
    assert told.startswith(f"pulsar-proxy {VERSION}")
    told = run([*offline, prefix / "bin/pulsar-proxy", "demo", *STORM, *tls_alone(PemFiles.write(tmp_path))], tmp_path)
    assert "The promise held" in told


def test_the_gateway_s_chart_renders_from_its_archive_as_from_the_checkout() -> None:
    packed = LoadedChart(file(f"pulsar-proxy-gateway-{VERSION}.tgz"))
    render = packed.render({"configData": BROKERS})
    assert render.of_kind("Deployment")
    assert render.one("Pod")["metadata"]["annotations"]["helm.sh/hook"] == "test"


def test_an_application_takes_the_sidecar_s_chart_out_of_its_archive(tmp_path: Path) -> None:
    application = tmp_path / "orders"
    shutil.copytree(EXAMPLE, application, ignore=shutil.ignore_patterns(LIBRARY.name))
    with tarfile.open(file(f"pulsar-proxy-sidecar-lib-{VERSION}.tgz")) as archive:
        archive.extractall(application / "charts", filter="data")
    assert (application / "charts" / LIBRARY.name / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()
    told = LoadedChart(application).render({}).all_text()
    assert told == LoadedChart(EXAMPLE).render({}).all_text()


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Image]:
    """The image out of its archive, in a store that had nothing."""
    archive = file(f"pulsar-proxy-image-{VERSION}-linux-*.tar.gz")
    buildah, _ = tools("buildah", "unshare")
    if os.geteuid() != 0:
        unusable("buildah", "mounting an image needs root")
    images = Images(tmp_path_factory.mktemp("store"), Tools(buildah))
    with images.owned():
        name = f"localhost/pulsar-proxy:{VERSION}"
        # Engines load it as it is; buildah reads no compressed archive.
        plain = images.home / "image.tar"
        with gzip.open(archive) as packed, plain.open("wb") as out:
            shutil.copyfileobj(packed, out, 1024 * 1024)
        images.buildah("pull", "--quiet", f"docker-archive:{plain}")
        plain.unlink()
        with images.root_of(name) as root:
            yield Image(root, images.configuration(name))
        images.buildah("rmi", "--all", "--force")


async def test_the_image_serves_out_of_its_archive_and_runs_the_demo(loaded: Image, tmp_path: Path) -> None:
    await serves_and_ends(loaded, tmp_path, runs_the_demo)


def runs_the_demo(proxy: Contained) -> None:
    files = PemFiles.write(Path(f"/proc/{proxy.process.pid}/root/tmp"))
    inside = PemFiles(*(Path("/tmp") / path.name for path in (files.certificate, files.key, files.trust)))
    # Without the keys of the proxy beside it: the demo's own proxy would take them.
    alone = replace(proxy, environment=proxy.image.environment)
    done = alone.run("pulsar-proxy", "demo", *STORM, *tls_alone(inside))
    assert "The promise held" in done.stdout, done.stdout + done.stderr
