"""Owns the jars of Delta Lake and s3a under test; also the command that brings them, which belongs to no test's time.

A machine without Maven is an error in one line, never a silent skip.
"""

import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
POM = ROOT / "pipeline" / "jars" / "pom.xml"
CACHE = ROOT / ".cache" / "delta"


class MissingJarsError(Exception):
    """The jars cannot be had; the text says why."""


def delta_jars() -> Path:
    """Give the directory of the jars, brought by Maven once per content of pom.xml; raises MissingJarsError."""
    cached = CACHE / hashlib.sha256(POM.read_bytes()).hexdigest()[:16]
    if cached.is_dir():
        return cached
    if shutil.which("mvn") is None:
        raise MissingJarsError("tests of the pipeline need maven: mvn not found")
    # Under another name until it is whole: a second run may look at the same time.
    CACHE.mkdir(parents=True, exist_ok=True)
    fresh = cached.with_suffix(".fresh")
    goal = ["dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={fresh}"]
    command = ["mvn", "-q", "-B", "-P", "s3", "-f", str(POM), *goal]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode != 0 or not list(fresh.glob("*.jar")):
        output = done.stdout + done.stderr
        raise MissingJarsError(f"mvn could not bring the jars of {POM.relative_to(ROOT)}: {output.strip()[:500]}")
    fresh.replace(cached)
    return cached


if __name__ == "__main__":
    try:
        print(delta_jars())
    except MissingJarsError as error:
        print(error, file=sys.stderr)
        raise SystemExit(1) from None
