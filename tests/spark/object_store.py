"""Owns the object store of tests: a server with the interface of S3 in memory, on loopback (`s3/`)."""

import os
import subprocess
import urllib.request
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, urlencode

from tests.support.go_build import built
from tests.support.sockets.ports import LOOPBACK

BUCKET = "events"
NAMESPACE = "{http://s3.amazonaws.com/doc/2006-03-01/}"


@dataclass(frozen=True, slots=True)
class ObjectStore:
    """The bucket `events` of a server that runs."""

    port: int

    @property
    def conf(self) -> dict[str, str]:
        """Give what Spark must be told of it; a key is needed for a signature, which nobody looks at."""
        return {
            "spark.hadoop.fs.s3a.endpoint": f"http://{LOOPBACK}:{self.port}",
            "spark.hadoop.fs.s3a.endpoint.region": "external",
            "spark.hadoop.fs.s3a.path.style.access": "true",
            "spark.hadoop.fs.s3a.access.key": "tests",
            "spark.hadoop.fs.s3a.secret.key": "tests",
        }

    def uri(self, name: str) -> str:
        """Name an object, or a directory, for Spark."""
        return f"s3a://{BUCKET}/{name}"

    def put(self, name: str, content: bytes) -> None:
        """Have an object hold this."""
        url = f"http://{LOOPBACK}:{self.port}/{BUCKET}/{quote(name)}"
        with urllib.request.urlopen(urllib.request.Request(url, content, method="PUT")):
            pass

    def get(self, name: str) -> bytes:
        with urllib.request.urlopen(f"http://{LOOPBACK}:{self.port}/{BUCKET}/{quote(name)}") as answer:
            content: bytes = answer.read()
        return content

    def names(self, prefix: str = "") -> list[str]:
        """List the objects whose names begin so."""
        found: list[str] = []
        query = {"list-type": "2", "prefix": prefix, "max-keys": "1000"}
        while True:
            with urllib.request.urlopen(f"http://{LOOPBACK}:{self.port}/{BUCKET}?{urlencode(query)}") as answer:
                root = ET.fromstring(answer.read())
            texts = [(each.tag.removeprefix(NAMESPACE), each.text or "") for each in root.iter()]
            found += [text for tag, text in texts if tag == "Key"]
            following = [text for tag, text in texts if tag == "NextContinuationToken"]
            if not following:
                return found
            query["continuation-token"] = following[0]


@contextmanager
def object_store(log: Path) -> Iterator[ObjectStore]:
    """Run a server with an empty bucket; skips the test where it cannot be built."""
    program = built(Path(__file__).parent / "s3", "s3", "object-store")
    with log.open("wb") as errors:
        server = subprocess.Popen(
            [str(program)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, env=os.environ
        )
    try:
        assert server.stdout is not None
        yield ObjectStore(int(server.stdout.readline()))
    finally:
        server.kill()
        server.communicate()
