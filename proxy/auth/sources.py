"""Contents of a setting: a file, inline data, or base64; and files that are read again when they change.

Rule: a fault at the start is a fault of the configuration and names its key; after a later fault the old contents stay
in force. The disk is never accessed on the event loop once the proxy runs. Error texts never hold contents, which may
be secrets.
"""

import base64
import binascii
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar
from urllib.parse import unquote_to_bytes, urlsplit

from proxy.auth.failures import SettingFault
from proxy.core.files import read_regular
from proxy.core.threads import NoThread, in_thread

T = TypeVar("T")

_Stamp = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Source:
    """Either the path of a file or the inline content of the setting."""

    path: str = ""
    content: bytes = field(default=b"", repr=False)


def source_of(value: str, key: str) -> Source:
    """Return the source that a setting refers to: a `file:` or `data:` URL, the path of a file, or base64 text.

    Raise SettingFault. Unlike upstream's proxy, this function never decodes an absolute path that does not exist as
    base64: a mistyped path would become a key that anybody can read in the configuration.
    """
    value = value.strip()
    if value.startswith("data:"):
        return Source(content=_data_url(value, key))
    if value.startswith("file:"):
        return Source(path=_file_url(value, key))
    if value.startswith(("/", "./", "../")) or os.path.exists(value):
        return Source(path=value)
    return Source(content=_base64(value, key, "neither an existing file nor base64"))


def _file_url(value: str, key: str) -> str:
    parts = urlsplit(value)
    path = os.fsdecode(unquote_to_bytes(parts.path))
    if parts.netloc not in ("", "localhost") or not path or "\0" in path:
        raise SettingFault(key, "expected file:///path/of/a/file")
    return path


def _data_url(value: str, key: str) -> bytes:
    # RFC 2397, the part that upstream reads: data:[type][;charset=...][;base64],<data>
    head, comma, data = value.removeprefix("data:").partition(",")
    if not comma or not data:
        raise SettingFault(key, "expected data:;base64,<base64 text> or data:,<text>")
    if "base64" in head.split(";")[1:]:
        return _base64(data, key, "not base64 after data:;base64,")
    return unquote_to_bytes(data)


def _base64(text: str, key: str, problem: str) -> bytes:
    # Pulsar's tools write the plain alphabet, padded; others write the URL alphabet without padding.
    plain = "".join(text.split()).translate(str.maketrans("-_", "+/")).rstrip("=")
    try:
        content = base64.b64decode(plain + "=" * (-len(plain) % 4), validate=True)
    except (binascii.Error, ValueError):
        content = b""
    if not content:
        raise SettingFault(key, problem)
    return content


class Watched(Generic[T]):
    """A value built from the contents of a setting; `look` rebuilds it when the file has changed.

    `build` makes the value and raises ValueError with a text for the operator. The constructor raises SettingFault.
    """

    __slots__ = ("_build", "_source", "_stamp", "_unreadable", "key", "value")

    def __init__(self, setting: str, key: str, build: Callable[[bytes], T]) -> None:
        self.key = key
        self._source = source_of(setting, key)
        self._build = build
        self._stamp: _Stamp | None = None
        self._unreadable = False
        value = self._newer()
        assert value is not None  # the first read is always a change
        self.value = value[0]

    @property
    def path(self) -> str:
        """The file to watch; empty if the setting has inline data."""
        return self._source.path

    async def look(self) -> bool:
        """Read the file again if it changed, and return whether `value` is new.

        Raise SettingFault once per change to unusable contents; `value` stays.
        """
        if not self.path:
            return False
        # The thread writes the stamp without a lock: each file has one task, so looks never overlap, however long one
        # takes. The exit of the process waits for no thread of its own.
        try:
            newer = await in_thread(self._newer, "watched file", None)
        except NoThread:
            # The next look tries again.
            return False
        if newer is None:
            return False
        self.value = newer[0]
        return True

    def _newer(self) -> tuple[T] | None:
        content = self._source.content if not self.path else self._changed_file()
        if content is None:
            return None
        try:
            return (self._build(content),)
        except ValueError as error:
            raise SettingFault(self.key, f"{self.path}: {error}" if self.path else str(error)) from error

    def _changed_file(self) -> bytes | None:
        try:
            # Read the stamp before the contents: a writer that is not done yet will change the stamp once more.
            stamp = self._stamp_of_file()
            if stamp == self._stamp:
                return None
            content = self._contents()
        except OSError as error:
            # Each look tries again, but only the first failure is reported.
            self._stamp = None
            if self._unreadable:
                return None
            self._unreadable = True
            raise SettingFault(self.key, f"cannot read {self.path}: {error.strerror or error}") from error
        self._stamp, self._unreadable = stamp, False
        return content

    def _stamp_of_file(self) -> _Stamp:
        status = os.stat(self.path)
        # ctime, because a repaired permission changes nothing else.
        return status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino, status.st_dev

    def _contents(self) -> bytes:
        return read_regular(self.path)
