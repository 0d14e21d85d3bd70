"""Other packages called `proxy`, `limiter` or `protocol`: told by check-config and --version, refused by serve."""

import os
import sys
import tomllib
from pathlib import Path

import pytest

from proxy.cli import installation
from proxy.cli.installation import ADVICE, NAMES, shared_names, versions
from proxy.cli.main import FAILED, main
from proxy.core.native import INSTALL, NativeExtension
from proxy.core.version import VERSION
from tests.support.programs import ran

ROOT = Path(__file__).resolve().parents[4]
FOUND = f"import name proxy: got proxy.py 2.4.10 too, expected no other: {ADVICE}"


def distribute(at: Path, name: str, version: str, **files: str) -> None:
    """Write the metadata of a distribution, as an installer does."""
    folder = at / f"{name.replace('-', '_')}-{version}.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text(f"Metadata-Version: 2.4\nName: {name}\nVersion: {version}\n")
    for file, text in files.items():
        (folder / file).write_text(text)


@pytest.fixture
def other_proxy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    distribute(tmp_path, "proxy.py", "2.4.10", RECORD="bin/proxy,,\nproxy/__init__.py,sha256=a,1\nproxy/core.py,,\n")
    monkeypatch.syspath_prepend(tmp_path)


def ended_with_a_stranger(file: Path, folder: Path, *arguments: str) -> tuple[int, list[str]]:
    """Run a command in a Python that finds another `limiter`, an empty file in `folder`, before ours."""
    file.parent.mkdir(exist_ok=True)
    file.write_text("")
    program = "import sys; sys.path.insert(0, sys.argv.pop(1)); from proxy.cli.main import main; sys.exit(main())"
    command = [sys.executable, "-c", program, str(folder), *arguments, "--set", "brokerServiceURL=pulsar://b"]
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("OTEL_", "PULSAR_"))}
    done = ran(command, cwd=ROOT, env=environ)
    return done.returncode, done.stderr.splitlines()


@pytest.mark.usefixtures("other_proxy")
def test_check_config_and_the_version_warn_of_another_owner(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check-config", "--set", "brokerServiceURL=pulsar://b"]) == 0
    out, err = capsys.readouterr()
    assert out.endswith("\nconfiguration is valid\n")
    assert f"warning: {FOUND}" in err.splitlines()
    with pytest.raises(SystemExit, match="0"):
        main(["--version"])
    assert capsys.readouterr() == (f"{versions()}\n", f"warning: {FOUND}\n")


@pytest.mark.parametrize(
    ("extension", "told"),
    [
        (NativeExtension(object(), "1.2", tls_libraries={"one": "3", "two": "4"}), ("1.2", "one 3, two 4")),
        (
            NativeExtension(None, "1.2", "pulsar-proxy-native 1.2 does not fit"),
            ("none (pulsar-proxy-native 1.2 does", "none"),
        ),
    ],
)
def test_the_version_names_the_native_extension(
    extension: NativeExtension, told: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(installation, "native", lambda: extension)
    first, second, third, last = versions().splitlines()
    assert first == f"pulsar-proxy {VERSION}"
    assert second.startswith(f"native extension: {told[0]}")
    assert third == f"TLS: {told[1]}"
    assert last == f"relay engine with the defaults: none, --without-extension is needed, or: {INSTALL}"


@pytest.mark.parametrize(
    ("name", "files", "owned"),
    [
        ("one-file", {"RECORD": "limiter.py,sha256=a,1\n"}, "limiter"),
        ("by-its-list", {"top_level.txt": "other\nproxy\n"}, "proxy"),
        ("another", {"RECORD": "my/proxy/a.py,,\nproxy_tools/a.py,,\nproxy.x-1.dist-info/METADATA,,\n"}, None),
        ("without-files", {}, None),
        ("Pulsar_Proxy.Sidecar", {"RECORD": "proxy/__init__.py,,\n"}, None),
    ],
)
def test_an_owner_is_known_by_its_files(
    name: str, files: dict[str, str], owned: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    distribute(tmp_path, name, "1", **files)
    monkeypatch.syspath_prepend(tmp_path)
    expected = [] if owned is None else [f"import name {owned}: got {name} 1 too, expected no other: {ADVICE}"]
    assert shared_names() == expected


@pytest.mark.parametrize(
    ("command", "file", "got"),
    [("serve", "limiter/__init__.py", "limiter"), ("check-config", "limiter.py", "limiter.py")],
)
def test_a_stranger_in_the_place_of_a_package_is_refused(command: str, file: str, got: str, tmp_path: Path) -> None:
    code, said = ended_with_a_stranger(tmp_path / file, tmp_path, command)
    expected = f"got {tmp_path / got}, expected {ROOT / 'limiter'}: {ADVICE}"
    assert (code, said) == (FAILED, [f"error: import name limiter: {expected}"])


def test_every_package_of_the_wheel_is_looked_for() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert set(NAMES) == set(project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"])
