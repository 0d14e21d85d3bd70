"""Find a directory on a disk that the proxy takes for lists."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from proxy.cli.demo.children import directory_for_lists
from tests.support.tools import unusable

# A part of the checkout, which lies on a disk where the directory for temporary files is a tmpfs.
BESIDE = Path(__file__).resolve().parents[3] / ".cache"


@contextmanager
def local_disk(temporary: Path) -> Iterator[Path]:
    """Give a directory that can be made in `temporary`, or else in the checkout; skip the test and record the gap."""
    if (found := directory_for_lists(temporary)) is not None:
        yield found
        return
    BESIDE.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=BESIDE) as beside:
        if (found := directory_for_lists(Path(beside))) is None:
            unusable("local disk", "neither temporary files nor the checkout are on a local disk of this user")
        yield found
