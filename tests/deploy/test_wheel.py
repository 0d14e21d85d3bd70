"""What a wheel brings beside its modules, built as `pip install` builds it, and with how little it can be built."""

import os
import sys
import zipfile
from pathlib import Path

from proxy.cli.completions import SCRIPTS, generated
from proxy.cli.main import whole_parser
from scripts.packaging.man import pages
from tests.support.programs import succeeded

ROOT = Path(__file__).resolve().parents[2]
# A build has hatchling, shtab and what hatchling needs: none of what the proxy needs at run time.
OF_THE_PROXY = ("aiohttp", "cryptography", "orjson", "prometheus_client", "structlog", "uvloop")
BUILD = """
import sys
sys.modules.update(dict.fromkeys(sys.argv[3].split(",")))
from hatchling import build
print(getattr(build, sys.argv[1])(sys.argv[2]))
"""


def contents(directory: Path, hook: str, missing: tuple[str, ...]) -> dict[str, str]:
    """Build from the checkout and return each file that is no module, by its path below the package or the prefix."""
    # Pip's own builds are told by this variable.
    command = [sys.executable, "-c", BUILD, hook, directory, ",".join(missing)]
    said = succeeded(command, cwd=ROOT, env=os.environ | {"PIP_BUILD_TRACKER": "x"})
    with zipfile.ZipFile(directory / said.split()[-1]) as wheel:
        names = [name for name in wheel.namelist() if "/data/share/" in name or "/completion/" in name]
        found = {name.partition(".data/data/")[2] or name: wheel.read(name).decode() for name in names}
        found["METADATA"] = next(wheel.read(name).decode() for name in wheel.namelist() if name.endswith("/METADATA"))
    return found


def manual() -> dict[str, str]:
    return {f"share/man/man{name[-1]}/{name}": text for name, text in pages().items()}


def test_a_wheel_brings_manual_pages_and_the_script_of_each_shell(tmp_path: Path) -> None:
    found = contents(tmp_path, "build_wheel", OF_THE_PROXY)
    assert "Requires-Dist: shtab" not in found.pop("METADATA").partition("Provides-Extra")[0]
    scripts = {shell: generated(shell, whole_parser()) for shell in SCRIPTS}
    assert {name: text for name, text in found.items() if name.startswith("share/")} == manual() | {
        "share/bash-completion/completions/pulsar-proxy": scripts["bash"],
        "share/fish/vendor_completions.d/pulsar-proxy.fish": scripts["fish"],
        "share/zsh/site-functions/_pulsar-proxy": scripts["zsh"],
    }
    packaged = {Path(name).name: text for name, text in found.items() if not name.startswith("share/")}
    assert packaged == {SCRIPTS[shell]: text for shell, text in scripts.items()}


def test_an_editable_install_is_built_without_shtab_and_asks_for_it(tmp_path: Path) -> None:
    found = contents(tmp_path, "build_editable", (*OF_THE_PROXY, "shtab"))
    assert "\nRequires-Dist: shtab" in found.pop("METADATA").partition("Provides-Extra")[0]
    assert found == manual()
