"""Make the admin client for the options that `top`, `admin`, `config` and `log-level` share.

Rule: nothing is sent here. A wrong option or configuration ends with exit code 2. A fault in a key that does not
locate the proxy is only a warning: the file may have been broken after the start of the proxy.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from proxy.cli.admin.client import AdminClient
from proxy.config.config import Config, ConfigError
from proxy.core.files import read_regular
from proxy.web.admin.control_socket import control_paths

FAILED: Final = 1
BAD_CONFIG: Final = 2
_WHERE: Final = (Config.control_socket_path, Config.service_port, Config.service_port_tls)


def admin_client(options: argparse.Namespace, environ: Mapping[str, str]) -> AdminClient:
    """Return a client of the proxy that `options` select; raises ConfigError or BadOptions."""
    if options.address is not None:
        return AdminClient(address=options.address, token=_token(options.token_file))
    if options.token_file is not None:
        raise BadOptions("--token-file: expected --address with this option")
    return AdminClient(socket_paths(options, environ))


def socket_paths(options: argparse.Namespace, environ: Mapping[str, str]) -> Sequence[Path]:
    """Return the paths where the control socket may be, best first; raises ConfigError."""
    if options.socket is not None:
        return [Path(options.socket)]
    config, faults = Config.load_despite_faults(_WHERE, options.config, environ)
    for fault in faults:
        print(f"warning: {fault}", file=sys.stderr)
    return list(control_paths(config.control_socket_path, config.client_port, environ))


class BadOptions(Exception):
    """Options that exclude each other, or an unreadable token file; the text names them."""


def problems_of(error: ConfigError | BadOptions) -> list[str]:
    """Return a line for each fault."""
    return [f"error: {problem}" for problem in (error.problems if isinstance(error, ConfigError) else [error])]


def _token(path: str | None) -> str:
    if path is None:
        raise BadOptions("--address: expected --token-file with this option")
    try:
        token = read_regular(path).decode("ascii").strip()
    except (OSError, UnicodeError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else "not ascii text"
        raise BadOptions(f"--token-file: cannot read {path}: {reason.lower()}") from error
    if not token or not token.isprintable() or " " in token:
        raise BadOptions(f"--token-file: expected a single word in {path}")
    return token
