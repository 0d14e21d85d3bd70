"""Read files that an operator names, with a bound and only if they are regular files.

Rule: a configuration that is a link to /dev/zero must not fill the memory, and a FIFO must not keep a thread forever.
No other module of the proxy opens such a file (`tests/unit/proxy/core/test_files.py`).
"""

import errno
import os
import stat
from typing import Final

# Far more than any configuration, key or bundle of certificate authorities.
LARGEST_FILE_BYTES: Final = 4 * 1024 * 1024
# A FIFO is opened without a writer, and no terminal becomes that of the process, should the path change its meaning
# between the look and the open.
_FLAGS: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY


def read_regular(path: str | os.PathLike[str], most_bytes: int = LARGEST_FILE_BYTES) -> bytes:
    """Return the contents of a regular file of at most `most_bytes`; raises OSError, whose `strerror` is the reason."""
    try:
        # Look before opening: opening some devices has effects.
        _expect_regular(os.stat(path).st_mode, path)
        descriptor = os.open(path, _FLAGS)
    except ValueError as error:
        raise OSError(errno.EINVAL, "a path with a zero byte") from error
    with open(descriptor, "rb") as file:
        _expect_regular(os.fstat(descriptor).st_mode, path)
        contents = file.read(most_bytes + 1)
    if len(contents) > most_bytes:
        raise OSError(errno.EFBIG, f"larger than {most_bytes} bytes", os.fspath(path))
    return contents


def _expect_regular(mode: int, path: str | os.PathLike[str]) -> None:
    if stat.S_ISDIR(mode):
        raise OSError(errno.EISDIR, os.strerror(errno.EISDIR), os.fspath(path))
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, "not a regular file", os.fspath(path))
