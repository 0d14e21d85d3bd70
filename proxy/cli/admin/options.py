"""Where a command finds its proxy, out of the options that `top`, `admin`, `config` and `log-level` have in common.

Rule: nothing is asked here; a wrong option or configuration is exit code 2. A fault in a key that does not say where
the proxy is, is a warning: the file was broken since, and now the proxy has to be asked.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from proxy.cli.admin.client import AdminClient
from proxy.config.config import Config, ConfigError
from proxy.web.admin.control_socket import control_paths

FAILED: Final = 1
BAD_CONFIG: Final = 2
_WHERE: Final = (Config.control_socket_path, Config.service_port, Config.service_port_tls)


def admin_client(options: argparse.Namespace, environ: Mapping[str, str]) -> AdminClient:
    """Make what asks the proxy that `options` name; raises ConfigError, or BadOptions."""
    if options.address is not None:
        return AdminClient(address=options.address, token=_token(options.token_file))
    if options.token_file is not None:
        raise BadOptions("--token-file: expected --address beside it")
    return AdminClient(socket_paths(options, environ))


def socket_paths(options: argparse.Namespace, environ: Mapping[str, str]) -> Sequence[Path]:
    """Give the places where the control socket may be, best first; raises ConfigError."""
    if options.socket is not None:
        return [Path(options.socket)]
    config, faults = Config.load_despite_faults(_WHERE, options.config, environ)
    for fault in faults:
        print(f"warning: {fault}", file=sys.stderr)
    return list(control_paths(config.control_socket_path, config.client_port, environ))


class BadOptions(Exception):
    """Options that do not go together, or a file that cannot be read; the text names them."""


def problems_of(error: ConfigError | BadOptions) -> list[str]:
    """Give the lines that tell what is wrong."""
    return [f"error: {problem}" for problem in (error.problems if isinstance(error, ConfigError) else [error])]


def _token(path: str | None) -> str:
    if path is None:
        raise BadOptions("--address: expected --token-file beside it")
    try:
        token = Path(path).read_text(encoding="ascii").strip()
    except (OSError, UnicodeError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else "no ascii text"
        raise BadOptions(f"--token-file: cannot read {path}: {reason.lower()}") from error
    if not token or not token.isprintable() or " " in token:
        raise BadOptions(f"--token-file: expected one word in {path}")
    return token
