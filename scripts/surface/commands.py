"""The command line seen from a shell: parsers, exit codes, printed keys, and which values each key takes."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from scripts.generated import ROOT

PROXY: Final = (sys.executable, "-m", "proxy")
BROKER: Final = "brokerServiceURL=pulsar://127.0.0.1:9"
_JOBS: Final = (
    "init-topic", "ingest", "usage", "storms", "whatif", "advise", "report", "run", "compact", "catalog", "convert",
)  # fmt: skip
# Without a proxy, each ends at once; {file} is a good configuration, {broken} one with faults, {no} is not there.
INVOCATIONS: Final = (
    "", "--version", "--help", "--bogus", "bogus", "serve --bogus", "serve --config {no}", "serve --config {broken}",
    "serve --set", "serve --set servicePort", "serve --set servicePort=x", "serve", "check-config",
    "check-config --config {file}", "check-config --config {no}", "check-config --config {broken}",
    "check-config --config {file} --set bogus=1", "check-config --config {file} --set servicePort=70000",
    "check-config --config {file} --set tlsCertificateFilePath={no}", "print-config", "print-config --config {file}",
    "print-config --config {broken}", "health", "health --config {file}", "health --config {no}",
    "health --config {broken}", "health --timeout 0", "health --timeout 61", "health --timeout x", "top --once",
    "top --once --socket {no}", "top --once --config {no}", "top --once --config {broken}", "top --interval 0",
    "top --interval 3601", "top --once --address 127.0.0.1:9", "top --once --address x --token-file {file}",
    "top --socket {no} --config {file}", "config --socket {no}", "config --json --config {file}",
    "log-level --socket {no}", "log-level bogus", "log-level debug --for 0 --socket {no}",
    "log-level debug --for 86401 --socket {no}", "log-level --for 5 --socket {no}", "admin", "admin bogus",
    "admin connections --socket {no}", "admin connections --limit 0", "admin connections --mode bogus",
    "admin queue --socket {no}", "admin groups --json --socket {no}", "admin limiters --socket {no}", "admin kill",
    "admin kill x", "admin kill 1 --socket {no}", "admin reload --socket {no}", "admin drain --socket {no}",
    "completion", "completion bash", "completion fish", "completion zsh", "completion tcsh", "demo --connections 0",
    "demo --slow-share 2", "demo --bogus",
)  # fmt: skip
# Tried for every key at once: words, flags, addresses, and a ladder of numbers that crosses the usual bounds.
VALUES: Final = (
    "", "x", "true", "a,b", "file:///x", "127.0.0.1:1", "pulsar://h:1", "http://h:1", "{}", "info", "TLSv1.3", "-1",
    "0", "0.5", "1", "2", "10", "99", "101", "1000", "10001", "65535", "65536", "1048577", "86400001", "2147483648",
)  # fmt: skip
_FAULT: Final = re.compile(r"^(error|warning): \S+?\.conf(?::(\d+))?: ([\w.]+)", re.MULTILINE)


def environment(home: Path) -> dict[str, str]:
    """Return an environment of this run alone: any variable could set a key."""
    return {"PATH": os.environ["PATH"], "HOME": str(home), "XDG_RUNTIME_DIR": str(home), "TZ": "UTC", "COLUMNS": "200"}


def run(home: Path, command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, cwd=ROOT, env=environment(home), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60
    )


def ending(home: Path, arguments: Sequence[str]) -> dict[str, Any]:
    """Return the exit code of a command of the proxy, and which streams had text."""
    done = run(home, [*PROXY, *arguments])
    streams = {"stdout": done.stdout, "stderr": done.stderr}
    return {"code": done.returncode, "wrote": [name for name, text in streams.items() if text.strip()]}


def exit_codes(home: Path) -> dict[str, Any]:
    """Return how each invocation of the table ends where no proxy runs."""
    files = {"file": home / "good.conf", "broken": home / "broken.conf", "no": home / "not-there"}
    files["file"].write_text(f"{BROKER}\nwebServicePort=\nservicePort=9\n")
    files["broken"].write_text("servicePort=x\nwebServicePort=y\ncontrolSocketPath\\u00zz\n")
    return {each: ending(home, each.format_map(files).split()) for each in INVOCATIONS}


def parsers(home: Path) -> dict[str, Any]:
    """Return the parsers of both console scripts; `demo` and each job bring their options only when they are named."""
    jobs = _dumped(home, "pipeline.cli", *_JOBS)
    found = {f"pipeline {job}": jobs[job]["commands"][job] for job in _JOBS}
    return {**found, "pulsar-proxy": _dumped(home, "proxy", "demo")["demo"]}


def _dumped(home: Path, *words: str) -> Any:
    done = run(home, [sys.executable, "-m", "scripts.surface.parser_dump", *words])
    if done.returncode:
        raise RuntimeError(done.stderr)
    return json.loads(done.stdout)


def printed_keys(home: Path) -> Mapping[str, str]:
    """Return what `print-config` prints for each key: its default and where that came from."""
    lines = run(home, [*PROXY, "print-config", "--set", BROKER]).stdout.splitlines()
    return dict(line.split("=", 1) for line in lines)


def accepted_values(home: Path, keys: Sequence[str]) -> dict[str, dict[str, list[str]]]:
    """Return the keys that `check-config` finds wrong, or warns of, if all have one value; for many values."""
    path, found = home / "all.conf", {}
    for value in VALUES:
        path.write_text("".join(f"{key}={value}\n" for key in keys))
        found[value] = faults_of(run(home, [*PROXY, "check-config", "--config", str(path)]).stderr, keys)
    return found


def faults_of(said: str, keys: Sequence[str]) -> dict[str, list[str]]:
    """Return the keys that lines of `check-config` are about, by their line in the file, else by name."""
    found: dict[str, set[str]] = {"error": set(), "warning": set()}
    for severity, line, name in _FAULT.findall(said):
        found[severity].add(keys[int(line) - 1] if line else name)
    return {severity: sorted(names) for severity, names in found.items()}
