"""Owns a standalone cluster of Spark on loopback: a master and a worker with one core, as processes.

Executors run a Python that has the libraries of this one, and knows our packages only from what a job ships.
"""

import os
import sys
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyspark

from tests.spark.processes import process, wait_for
from tests.support.jvm import QUICK
from tests.support.sockets.ports import LOOPBACK, free_port

ROOT = Path(__file__).resolve().parents[2]
# What a driver must be told so that executors find it.
CONF = {
    "spark.driver.host": LOOPBACK,
    "spark.driver.bindAddress": LOOPBACK,
    "spark.executor.memory": "1g",
    "spark.executor.extraJavaOptions": " ".join(QUICK),
    "spark.ui.enabled": "false",
    "spark.task.maxFailures": "1",
}


@contextmanager
def standalone(directory: Path) -> Iterator[str]:
    """Run a master and its worker; gives the URL of the master."""
    home = Path(pyspark.__file__).parent
    environ = {
        **os.environ,
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": LOOPBACK,
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": " ".join(QUICK),
        "PYSPARK_PYTHON": sys.executable,
    }
    port = free_port()
    url = f"spark://{LOOPBACK}:{port}"
    run = [str(home / "bin" / "spark-class"), "org.apache.spark.deploy"]
    with ExitStack() as stack:
        log = directory / "master.log"
        command = [run[0], f"{run[1]}.master.Master", "--host", LOOPBACK, "--port", str(port), "--webui-port", "0"]
        master = stack.enter_context(process(command, log, environ))
        wait_for("I have been elected leader", log, master)
        words = ["--host", LOOPBACK, "--webui-port", "0", "--cores", "1", "--memory", "1g"]
        command = [run[0], f"{run[1]}.worker.Worker", *words, "--work-dir", str(directory / "work"), url]
        stack.enter_context(process(command, directory / "worker.log", environ))
        wait_for("Registering worker", log, master)
        yield url


def shipped(directory: Path) -> tuple[Path, Path]:
    """Make what a job ships, our packages, and the Python of executors; gives both paths."""
    packages = directory / "ours.zip"
    with zipfile.ZipFile(packages, "w") as archive:
        # As a wheel has them: modules, and what the page is made of.
        for path in (path for package in ("pipeline", "eventlog") for path in (ROOT / package).rglob("*.*")):
            if path.suffix in (".py", ".j2", ".css"):
                archive.write(path, path.relative_to(ROOT))
    libraries = next(path for path in sys.path if path.endswith("site-packages"))
    script = directory / "python"
    # Without `-S` it would read the .pth file of an editable install, and find our packages there.
    script.write_text(f'#!/bin/sh\nPYTHONPATH="$PYTHONPATH:{libraries}" exec "{sys.executable}" -S "$@"\n')
    script.chmod(0o755)
    return packages, script
