"""`python -m tests.fuzz.guided TARGET`: libFuzzer, by Atheris, on one target in this process; ends with libFuzzer's
exit code.

Rule: the modules are instrumented while they are imported, so nothing of the project may be imported before.
"""

import argparse
import sys
from collections.abc import Sequence

import atheris

# What is instrumented; the targets' modules lie in these (a test holds that).
INSTRUMENTED = [
    "protocol",
    "eventlog",
    "proxy.auth.providers.signed_token",
    "proxy.auth.roles",
    "proxy.config",
    "proxy.net.tls.hello",
    "proxy.web.connection",
    "proxy.web.forward",
    "proxy.web.http",
    "tests.fuzz.tls_sessions",
]


def main(arguments: Sequence[str]) -> None:
    """Fuzz until libFuzzer's own options end it."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.guided")
    parser.add_argument("target")
    options, more = parser.parse_known_args(arguments)
    with atheris.instrument_imports(include=INSTRUMENTED):
        from tests.fuzz.targets import BY_NAME
    target = BY_NAME[options.target]
    atheris.Setup([sys.argv[0], *more], target.run)
    atheris.Fuzz()


if __name__ == "__main__":
    main(sys.argv[1:])
