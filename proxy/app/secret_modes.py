"""Warn of files with secrets that other users of the machine can read or change.

Rule: a secret's file should be readable by the proxy's user only. A file of another user (root, say) may be readable by
a group, if the proxy reads the file as a member of that group. Not judged are files that an orchestrator mounts, whose
mode the operator of the proxy does not choose: a Kubernetes volume (a link by way of `..data`), and any file on a
read-only tmpfs.
"""

import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from proxy.auth.failures import SettingFault
from proxy.auth.sources import source_of
from proxy.config.config import Config
from proxy.config.credential_parameters import (
    BadParameters,
    CertificateParameters,
    OAuth2Parameters,
    TokenParameters,
    parse_credentials,
    path_of,
)
from proxy.core.log import Logger

_KUBERNETES_LINK: Final = "..data"


@dataclass(frozen=True, slots=True)
class OpenSecret:
    """A file with a secret that others can read or change, and the key that names the file."""

    key: str
    path: str
    mode: int

    def __str__(self) -> str:
        return f"{self.key}: {self.path} {self.problem}"

    @property
    def problem(self) -> str:
        """Return what is wrong and what to do."""
        may = "change" if self.mode & (stat.S_IWGRP | stat.S_IWOTH) else "read"
        return f"has mode {self.mode:04o}, so others can {may} the secret: expected 0600 or 0400 (chmod)"


def open_secrets(config: Config) -> list[OpenSecret]:
    """Return the files with secrets whose mode is too wide; a file that cannot be looked at is left out."""
    found = {}
    for key, path in _secret_files(config):
        with suppress(OSError, ValueError):
            status = os.stat(path)
            if _too_wide(status) and not _mounted(path):
                found[key, path] = OpenSecret(key, path, stat.S_IMODE(status.st_mode))
    return list(found.values())


def warn_of_open_secrets(config: Config, log: Logger) -> None:
    """Log a warning for each file with a secret whose mode is too wide."""
    for secret in open_secrets(config):
        detail = f"{secret.path} {secret.problem}"
        log.warning("the file of a secret is open to others", key=secret.key, detail=detail)


def _secret_files(config: Config) -> Iterator[tuple[str, str]]:
    """Yield the key and the path of each file with a secret, without reading the files."""
    for key in (
        Config.tls_key_file_path,
        Config.tls_key_store,
        Config.broker_client_key_file_path,
        Config.broker_client_tls_key_store,
        Config.admin_api_token_file_path,
    ):
        if path := config.value(key):
            yield key.name, path
    if config.authentication_enabled:
        for key in (Config.token_secret_key, Config.basic_auth_conf):
            with suppress(SettingFault):
                if (text := config.value(key)) and (path := source_of(text, key.name).path):
                    yield key.name, path
    for plugin, parameters in (
        (Config.broker_client_authentication_plugin, Config.broker_client_authentication_parameters),
        (Config.event_log_topic_authentication_plugin, Config.event_log_topic_authentication_parameters),
    ):
        with suppress(BadParameters):
            if path := _path_in(config.value(plugin), config.value(parameters)):
                yield parameters.name, path


def _path_in(plugin: str, parameters: str) -> str:
    given = parse_credentials(plugin, parameters)
    if isinstance(given, TokenParameters):
        return given.path
    if isinstance(given, CertificateParameters):
        return given.private_key
    if isinstance(given, OAuth2Parameters) and given.private_key.startswith("file:"):
        return path_of(given.private_key)
    return ""


def _too_wide(status: os.stat_result) -> bool:
    wide = stat.S_IRWXO | stat.S_IWGRP
    if status.st_uid == os.geteuid():
        # The group is not needed to read one's own file.
        wide |= stat.S_IRGRP
    return stat.S_ISREG(status.st_mode) and bool(status.st_mode & wide)


def _mounted(path: str) -> bool:
    """Return whether an orchestrator has mounted the file."""
    # Only for a file whose mode is too wide: this calls the C library, which is slow to import.
    from proxy.net.spill.directory import MEMORY, filesystem_magic

    if os.path.islink(path) and _KUBERNETES_LINK in Path(os.readlink(path)).parts:
        return True
    descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        return bool(os.fstatvfs(descriptor).f_flag & os.ST_RDONLY) and filesystem_magic(descriptor) in MEMORY
    finally:
        os.close(descriptor)
