"""The control socket: whose it is, and how it comes and goes. What is said on it: test_admin_api.py."""

import os
import socket
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from proxy.core.log import open_log
from proxy.net.listen.unix_sockets import PeerCredentials
from proxy.web.admin import control_socket as control
from proxy.web.admin.control_socket import ControlSocket, NotBelieved, connected, control_paths, open_control

PORT = 7001


def opened(setting: object) -> ControlSocket | None:
    return open_control(str(setting), PORT, open_log("info", "json", BytesIO()))


@contextmanager
def listening(path: Path) -> Iterator[ControlSocket]:
    """Listen on `path` until the block ends."""
    found = opened(path)
    assert found is not None
    try:
        yield found
    finally:
        found.close()


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


# --- whose it is ----------------------------------------------------------------------------------


@pytest.mark.threat("control-socket-open")
@pytest.mark.parametrize("umask", [0o000, 0o077])
def test_only_its_owner_can_open_it_from_its_first_moment_on(
    tmp_path: Path, umask: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, modes = tmp_path / "s", []
    bind = socket.socket.bind

    class Watched(socket.socket):
        def bind(self, address: Any) -> None:
            bind(self, address)
            modes.append(mode(path))

    monkeypatch.setattr(control.socket, "socket", Watched)  # type: ignore[attr-defined]
    before = os.umask(umask)
    try:
        with listening(path):
            assert modes == [0o600]
            assert mode(path) == 0o600
        assert os.umask(umask) == umask
    finally:
        os.umask(before)


def test_a_successors_socket_is_not_removed(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with listening(path) as found:
        path.unlink()
        with listening(path):
            found.close()
            assert path.exists()


@pytest.mark.parametrize("make", [Path.mkdir, Path.touch, lambda path: path.symlink_to("/dev/null")])
def test_what_is_no_socket_is_never_removed(tmp_path: Path, make: Callable[[Path], None]) -> None:
    path = tmp_path / "s"
    make(path)
    with pytest.raises(OSError, match=r"controlSocketPath\): expected a socket or no file"):
        opened(path)
    assert path.exists()


@pytest.mark.parametrize("name", ["n" * 108, "missing/s"])
def test_a_path_that_cannot_be_had_names_the_key(tmp_path: Path, name: str) -> None:
    with pytest.raises(OSError, match=f"{name}.*controlSocketPath"):
        opened(tmp_path / name)


# --- where it is ----------------------------------------------------------------------------------


def test_the_default_is_the_users_runtime_directory_then_one_of_its_own() -> None:
    own = Path(f"/var/tmp/pulsar-proxy-{os.getuid()}/pulsar-proxy-7001.sock")
    temporary = {"TMPDIR": "/var/tmp"}
    assert list(control_paths("", PORT, {"XDG_RUNTIME_DIR": "/run/user/7", **temporary})) == [
        Path("/run/user/7/pulsar-proxy-7001.sock"),
        own,
    ]
    assert list(control_paths("", PORT, {"XDG_RUNTIME_DIR": "", **temporary})) == [own]
    assert list(control_paths("", PORT, {})) == [Path("/tmp") / own.relative_to("/var/tmp")]
    assert list(control_paths("/a/b", PORT, {"XDG_RUNTIME_DIR": "/run/user/7"})) == [Path("/a/b")]


def test_without_a_key_it_is_made_in_a_directory_of_the_users_own(monkeypatch: pytest.MonkeyPatch) -> None:
    # A test's own directory may have a name that is too long for a socket.
    with TemporaryDirectory() as directory:
        monkeypatch.setenv("TMPDIR", directory)
        monkeypatch.setenv("XDG_RUNTIME_DIR", f"{directory}/absent")
        found = opened("")
        assert found is not None
        assert found.path.parent.parent == Path(directory)
        assert mode(found.path.parent) == 0o700
        found.close()


def test_a_directory_that_others_may_write_to_is_no_place_and_no_reason_not_to_serve(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = default_path(str(tmp_path), monkeypatch)
    own.parent.mkdir()
    own.parent.chmod(0o777)
    found = opened("")
    if found is not None:
        found.close()
    assert found is None
    assert not own.exists()


# --- who is believed by those who ask -------------------------------------------------------------


def default_path(directory: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the default path below `directory`; it is in force."""
    monkeypatch.setenv("TMPDIR", directory)
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    (path,) = control_paths("", PORT, os.environ)
    return path


def runs_as(user: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every process that listens be one of `user`."""
    monkeypatch.setattr(control, "credentials_of", lambda sock: PeerCredentials(1, user, user))


@pytest.mark.threat("default-path-taken")
def test_a_process_of_another_user_is_not_believed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, myself = tmp_path / "s", 1000
    monkeypatch.setattr(os, "geteuid", lambda: myself)
    with listening(path):
        for believed in (myself, 0):
            runs_as(believed, monkeypatch)
            connected(path, 1).close()
        runs_as(myself + 1, monkeypatch)
        with pytest.raises(NotBelieved, match=r"another user \(1001\)"):
            connected(path, 1)


@pytest.mark.threat("default-path-taken")
@pytest.mark.parametrize("variable", ["TMPDIR", "XDG_RUNTIME_DIR"])
@pytest.mark.parametrize("theirs", ["mode", "owner", "symlink"])
def test_nobody_is_asked_in_a_default_directory_that_others_own_or_write_to(
    variable: str, theirs: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with TemporaryDirectory() as directory:
        path = default_path(directory, monkeypatch)
        if variable == "XDG_RUNTIME_DIR":
            path = Path(directory, "runtime", path.name)
            monkeypatch.setenv(variable, str(path.parent))
        real = Path(directory, "real") if theirs == "symlink" else path.parent
        real.mkdir(0o700)
        if theirs == "symlink":
            path.parent.symlink_to(real)
        elif theirs == "mode":
            real.chmod(0o777)
        with listening(path) as there:
            if theirs == "owner":
                uid = os.getuid()
                lstat = Path.lstat
                monkeypatch.setattr(Path, "lstat", lambda self: _of(lstat(self), uid + 1))
            with pytest.raises(NotBelieved, match="only its owner writes to"):
                connected(path, 1)
            with pytest.raises(BlockingIOError):
                there.listening.accept()
            monkeypatch.undo()


def _of(found: os.stat_result, user: int) -> os.stat_result:
    return os.stat_result((*found[:4], user, *found[5:]))
