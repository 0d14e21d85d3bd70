"""Owns Pulsar 5.0.1: its class path by Maven, in which the V5 client is, and the Java that runs it."""

from pathlib import Path
from typing import Final

from tests.pulsar.java_consumers import compiled_command
from tests.pulsar.standalone import Kind, MissingToolError, class_path, java_of, missing_for_maven

JAVA_5_0: Final = 21
_HERE: Final = Path(__file__).parent
_POM: Final = _HERE / "broker_5_0" / "pom.xml"
_PROGRAM: Final = _HERE / "java" / "V5Client.java"


def class_path_5_0() -> str:
    """Give the class path of broker and V5 client; raises MissingToolError."""
    return class_path(_POM, "dependency:copy")


def v5_client() -> list[str]:
    """Return the command that runs the V5 client's scenarios; raises MissingToolError."""
    missing = missing_for_maven()
    if missing is not None:
        raise MissingToolError(f"the V5 client needs a jdk >= {JAVA_5_0} and maven: {missing}")
    java = java_of(JAVA_5_0)
    if not Path(java).resolve().with_name("javac").is_file():
        raise MissingToolError(f"the V5 client needs a jdk >= {JAVA_5_0}: no javac beside {java}")
    return compiled_command(java, class_path_5_0(), _PROGRAM)


BROKER_5_0: Final = Kind("5.0.1", class_path_5_0, JAVA_5_0)
