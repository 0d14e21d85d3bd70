"""Files with secrets that others can read are told of, and those that an orchestrator mounts are not."""

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from proxy.app.secret_modes import open_secrets
from proxy.net.spill import directory
from tests.support.configured import configured

TMPFS, EXT4 = 0x01021994, 0xEF53


def secret(tmp_path: Path, mode: int, name: str = "secret") -> Path:
    path = tmp_path / name
    path.write_text("hush")
    path.chmod(mode)
    return path


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o602])
def test_a_file_that_others_can_read_or_change_is_told_of(tmp_path: Path, mode: int) -> None:
    path = secret(tmp_path, mode)
    (found,) = open_secrets(configured(tlsKeyFilePath=path))
    assert str(found).startswith(f"tlsKeyFilePath: {path} has mode 0{mode:o}, so others can ")
    assert ("change" in str(found)) == bool(mode & 0o022)
    assert "hush" not in str(found)


@pytest.mark.parametrize("mode", [0o600, 0o700])
def test_a_file_of_its_user_alone_is_in_order(tmp_path: Path, mode: int) -> None:
    assert open_secrets(configured(tlsKeyFilePath=secret(tmp_path, mode))) == []


@pytest.mark.threat("secret-files-open")
@pytest.mark.parametrize(
    "keys",
    [
        {"tlsKeyFilePath": "{}"},
        {"brokerClientKeyFilePath": "{}"},
        {"tlsKeyStore": "{}"},
        {"brokerClientTlsKeyStore": "{}"},
        {"adminApiAddress": "127.0.0.1:1", "adminApiTokenFilePath": "{}"},
        {"authenticationEnabled": "true", "tokenSecretKey": "file://{}"},
        {"authenticationEnabled": "true", "tokenSecretKey": "{}"},
        {"authenticationEnabled": "true", "basicAuthConf": "{}"},
        {"brokerClientAuthenticationPlugin": "token", "brokerClientAuthenticationParameters": "file://{}"},
        {
            "brokerClientAuthenticationPlugin": "tls",
            "brokerClientAuthenticationParameters": "tlsCertFile:/public.pem,tlsKeyFile:{}",
        },
        {
            "brokerClientAuthenticationPlugin": "oauth2",
            "brokerClientAuthenticationParameters": '{{"issuerUrl": "https://i", "privateKey": "file://{}"}}',
        },
        {
            "eventLogTopic": "persistent://a/b/c",
            "eventLogTopicAuthenticationPlugin": "token",
            "eventLogTopicAuthenticationParameters": "file://{}",
        },
    ],
)
def test_every_key_that_names_a_secret_is_looked_at(tmp_path: Path, keys: dict[str, str]) -> None:
    path = secret(tmp_path, 0o644)
    (found,) = open_secrets(configured(**{key: value.format(path) for key, value in keys.items()}))
    assert found.path == str(path)


def test_public_files_and_inline_secrets_are_not_looked_at(tmp_path: Path) -> None:
    path = secret(tmp_path, 0o644)
    keys = {"tlsCertificateFilePath": path, "authenticationEnabled": "true", "tokenPublicKey": path}
    assert open_secrets(configured(**keys, tokenSecretKey="data:;base64,aHVzaA==")) == []
    assert open_secrets(configured(tlsKeyFilePath=tmp_path / "none")) == []


def test_a_file_of_another_user_may_be_read_by_a_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: own + 1)
    assert open_secrets(configured(tlsKeyFilePath=secret(tmp_path, 0o640))) == []
    assert len(open_secrets(configured(tlsKeyFilePath=secret(tmp_path, 0o660)))) == 1
    assert len(open_secrets(configured(tlsKeyFilePath=secret(tmp_path, 0o644)))) == 1


def test_a_secret_of_kubernetes_is_not_told_of(tmp_path: Path) -> None:
    # As the kubelet lays out a volume: name -> ..data/name, ..data -> ..2026_11_22.
    (tmp_path / "..2026_11_22").mkdir()
    secret(tmp_path / "..2026_11_22", 0o644, "tls.key")
    (tmp_path / "..data").symlink_to("..2026_11_22")
    (tmp_path / "tls.key").symlink_to("..data/tls.key")
    assert open_secrets(configured(tlsKeyFilePath=tmp_path / "tls.key")) == []
    (tmp_path / "other").symlink_to("..2026_11_22/tls.key")
    assert len(open_secrets(configured(tlsKeyFilePath=tmp_path / "other"))) == 1


@pytest.mark.parametrize(
    ("flags", "magic", "told"),
    [(os.ST_RDONLY, TMPFS, 0), (0, TMPFS, 1), (os.ST_RDONLY, EXT4, 1), (os.ST_RDONLY | os.ST_NOSUID, TMPFS, 0)],
)
def test_a_read_only_tmpfs_is_what_an_orchestrator_mounts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flags: int, magic: int, told: int
) -> None:
    path = secret(tmp_path, 0o644)
    monkeypatch.setattr(os, "fstatvfs", lambda _: SimpleNamespace(f_flag=flags))
    monkeypatch.setattr(directory, "filesystem_magic", lambda _: magic)
    assert len(open_secrets(configured(tlsKeyFilePath=path))) == told


def test_a_path_that_is_no_file_is_somebody_elses_matter(tmp_path: Path) -> None:
    assert open_secrets(configured(tlsKeyFilePath=tmp_path)) == []
