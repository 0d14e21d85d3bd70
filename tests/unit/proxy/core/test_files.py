"""Files that an operator names: regular ones, up to a bound."""

import errno
import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from proxy.auth.failures import SettingFault
from proxy.auth.own.broker_credentials import read_file
from proxy.auth.sources import Watched
from proxy.config.config import Config
from proxy.config.sources import ConfigError
from proxy.core.errors import CredentialsUnavailable
from proxy.core.files import LARGEST_FILE_BYTES, read_regular
from proxy.net.tls.pem import PemFile
from proxy.net.tls.suites import BadTlsSetting
from proxy.web.admin.access import read_token
from tests.support.patience import patient


def endless(directory: Path) -> Path:
    path = directory / "endless"
    path.symlink_to("/dev/zero")
    return path


def silent(directory: Path) -> Path:
    path = directory / "fifo"
    os.mkfifo(path)
    return path


def a_directory(directory: Path) -> Path:
    return directory


def huge(directory: Path) -> Path:
    path = directory / "huge"
    with path.open("wb") as file:
        file.truncate(1 << 40)
    return path


UNFIT = [(endless, "not a regular file"), (silent, "not a regular file"), (a_directory, "directory"), (huge, "larger")]


def test_a_file_of_the_largest_size_is_read_whole(tmp_path: Path) -> None:
    path = tmp_path / "file"
    for size in (0, 1, 10):
        path.write_bytes(b"x" * size)
        assert read_regular(path, 10) == b"x" * size
    path.write_bytes(b"x" * 11)
    with pytest.raises(OSError, match="larger than 10 bytes"):
        read_regular(path, 10)


def test_a_path_with_a_zero_byte_is_an_error_like_any_other() -> None:
    with pytest.raises(OSError, match="zero byte") as refused:
        read_regular("/etc/\0")
    assert refused.value.errno == errno.EINVAL


def test_a_link_to_a_regular_file_is_read_as_kubernetes_mounts_secrets(tmp_path: Path) -> None:
    (tmp_path / "..data").mkdir()
    (tmp_path / "..data" / "token").write_bytes(b"secret")
    (tmp_path / "token").symlink_to("..data/token")
    assert read_regular(tmp_path / "token") == b"secret"


@pytest.mark.threat("endless-configuration-file")
@pytest.mark.parametrize(("make", "reason"), UNFIT)
def test_every_reader_refuses_what_is_no_file(make: Callable[[Path], Path], reason: str, tmp_path: Path) -> None:
    path = str(make(tmp_path))
    with pytest.raises(SettingFault, match=reason):
        read_token(path)
    with pytest.raises(CredentialsUnavailable, match=reason):
        read_file(path)
    with pytest.raises(SettingFault, match=f"(?i){reason}"):
        Watched(path, "tokenSecretKey", bytes)
    with pytest.raises(BadTlsSetting, match=f"(?i){reason}"):
        PemFile("tlsKeyFilePath", path).read()
    if make is not endless:  # A process with little memory reads this file, see below.
        with pytest.raises(ConfigError, match=f"(?i){reason}"):
            Config.load(path)


@pytest.mark.threat("endless-configuration-file")
def test_a_configuration_without_end_takes_no_memory(tmp_path: Path) -> None:
    path = endless(tmp_path)

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))

    found = subprocess.run(
        [sys.executable, "-m", "proxy", "check-config", "--config", str(path)],
        capture_output=True, text=True, preexec_fn=limited, timeout=patient(60), check=False,
    )  # fmt: skip
    assert found.returncode == 2, found
    assert f"{path}: got not a regular file, expected a readable file" in found.stdout + found.stderr
    assert LARGEST_FILE_BYTES < 1 << 30
