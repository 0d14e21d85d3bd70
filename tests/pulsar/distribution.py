"""Owns Pulsar 4.0.8 as it is distributed: its jars, brought here by Maven once (235 MB); proxy and broker are in them.

The broker's own artifact does not resolve in this version: parts of it are not on Maven Central. The distribution does.
"""

import shutil
import subprocess
from pathlib import Path
from typing import Final

from tests.pulsar.standalone import Kind, MissingToolError, missing_for_maven

DISTRIBUTION_VERSION: Final = "4.0.8"
_ROOT: Final = Path(__file__).parent.parent.parent
_POM: Final = _ROOT / "benchmarks" / "ladder" / "peers" / "pom.xml"
_DIRECTORY: Final = _ROOT / ".cache" / "pulsar" / "distribution"


def distribution_class_path() -> str:
    """Give the class path of the distribution; raises MissingToolError."""
    jars = _DIRECTORY / f"apache-pulsar-{DISTRIBUTION_VERSION}" / "lib"
    if not (jars / "complete").exists():
        missing = missing_for_maven()
        if missing is not None:
            raise MissingToolError(f"pulsar {DISTRIBUTION_VERSION} needs java and maven: {missing}")
        shutil.rmtree(_DIRECTORY, ignore_errors=True)
        command = ["mvn", "-q", "-B", "-f", str(_POM), f"-Dpeers.directory={_DIRECTORY}", "process-resources"]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise MissingToolError(f"mvn could not bring pulsar {DISTRIBUTION_VERSION}: {done.stdout[-300:]}")
        # A run that was cut short leaves half of the jars.
        (jars / "complete").touch()
    return f"{jars}/*"


BROKER_4_0: Final = Kind(DISTRIBUTION_VERSION, distribution_class_path)
