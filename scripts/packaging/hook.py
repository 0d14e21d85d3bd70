"""Add manual pages and completion scripts to a wheel while hatchling builds the wheel.

Rule: nothing is written into the sources. An editable install gets only the manual pages and needs only hatchling:
there `pulsar-proxy completion` generates its script at each call, with shtab.
"""

import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SHTAB: Final = "shtab>=1.13,<2"
# The directory in which each shell looks for scripts of packages, below the prefix of an environment.
COMPLETIONS: Final = {
    "bash": "share/bash-completion/completions",
    "fish": "share/fish/vendor_completions.d",
    "zsh": "share/zsh/site-functions",
}


class PackagedFiles(BuildHookInterface[Any]):
    """Makes the files before a wheel is built, and removes them afterwards."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Generate the files and add them to the wheel."""
        sys.path.insert(0, self.root)
        from scripts.packaging.man import pages

        self._folder = TemporaryDirectory()
        for name, text in pages().items():
            build_data["shared_data"][self._made(name, text)] = f"share/man/man{name[-1]}/{name}"
        if version == "editable":
            build_data["dependencies"].append(SHTAB)
            return
        from proxy.cli.completions import FOLDER, SCRIPTS, generated
        from proxy.cli.main import whole_parser

        for shell, name in SCRIPTS.items():
            made = self._made(name, generated(shell, whole_parser()))
            build_data["shared_data"][made] = f"{COMPLETIONS[shell]}/{name}"
            build_data["force_include"][made] = str(FOLDER.relative_to(self.root) / name)

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove the generated files."""
        self._folder.cleanup()

    def _made(self, name: str, text: str) -> str:
        path = Path(self._folder.name, name)
        path.write_text(text, encoding="utf-8")
        return str(path)
