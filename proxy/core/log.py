"""Log lines: their format, their fields, and their level.

Rule: one event is one line. Bytes of a peer may be logged, for they cannot end a line or make a long line: control
characters are escaped and long values are cut. This module knows no connection and no configuration key.
"""

import json
import logging
import re
import sys
from collections.abc import Callable, MutableMapping
from datetime import UTC, datetime
from typing import Any, BinaryIO

import orjson
from structlog import BoundLoggerBase, BytesLogger
from structlog.processors import format_exc_info
from structlog.typing import WrappedLogger

from proxy.core.secrets import without_tokens

LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}
# The level of a part of the log that has none of its own.
AS_THE_REST = ""

# Every field that a log line of the proxy may have. A test fails for a line with any other field.
FIELDS = {
    "time": "time of the event, UTC, ISO 8601",
    "level": "one of debug, info, warning, error",
    "event": "name of the event, lower case, without variable parts",
    "exception": "traceback of an unexpected error",
    "logger": "library that wrote the line, if not the proxy",
    "action": "change that was requested from the admin API",
    "above_share": "requests that were ended because their client had more than its share",
    "address": "a host and port that is neither a client's nor a broker's",
    "admin_port": "TCP port of the admin API",
    "asked": "amount that a request asked of its limit, in bytes for a limiter",
    "broker": "address of the broker",
    "bytes_per_second": "publish rate of a topic",
    "budget_bytes": "largest possible sum of all limited memory",
    "bytes": "size of the subject of the event",
    "bytes_from_client": "bytes that were read of a client, of a relay since it began",
    "bytes_to_client": "bytes that were handed on to a client, of a relay since it began",
    "cause": "cause of the end of a connection (label of pulsar_proxy_disconnects_total)",
    "client": "address of the client",
    "client_version": "version that the client states",
    "command": "name or number of a Pulsar command",
    "change": "key of proxy.conf to change so that the request would succeed",
    "component": "part of the proxy that wrote the line, as logLevels names it",
    "connection": "id of the connection of a client, as admin connections lists it",
    "commands_since_last_line": "relayed commands since then without a line",
    "connections": "number of connections",
    "connections_since_last_line": "lines of the connection log that were left out since then",
    "container_limit_bytes": "memory limit of the container",
    "detail": "text of an error",
    "direction": "to_broker or to_client",
    "error": "name of the error sent to the client",
    "evictions": "clients closed for not reading that this line stands for",
    "expected": "expected value",
    "exports": "exports of metrics that this line stands for",
    "file": "path of a file",
    "got": "found value",
    "files": "number of files on disk",
    "held": "bytes of a limiter, or of the disk, that are in use",
    "host": "name or address of a machine",
    "limit": "value of a limit",
    "lists": "number of topic lists",
    "limiter": "heap or direct",
    "key": "key of proxy.conf",
    "keys": "keys of proxy.conf",
    "kernels_choice": "largest sum of what only the kernel bounds, bytes",
    "largest_parts": "largest parts of the memory budget, with bytes",
    "line": "line in a file",
    "machine_bytes": "memory of the machine",
    "messages_per_second": "publish rate of a topic",
    "metrics_port": "TCP port of the pages for monitors and probes",
    "method": "method of an HTTP request",
    "mode": "handshake, lookup or relay: what a connection was, or becomes",
    "names": "names of certificates: server, web, broker_client",
    "namespace": "Pulsar namespace",
    "new": "value after the change",
    "old": "value before the change",
    "outcome": "outcome of a request (label of pulsar_proxy_lists_answers_total)",
    "path": "path of a socket, or of a request without its query",
    "pid": "process id",
    "port": "TCP port",
    "pressure": "pressure of memory or of backlog, from 0 to 1",
    "principal": "role of the client",
    "ratio": "memory in use as a part of its limit",
    "queued": "requests in the queue of a limiter",
    "reason": "reason of a decision",
    "refusals_since_last_line": "refusals that this line stands for",
    "request_id": "id of the request, chosen by the client",
    "requests_since_last_line": "HTTP requests since then without a line",
    "seconds": "duration of the subject of the event",
    "signal": "name of a signal",
    "stage": "resource that a refused request waited for, or the limit that it exceeded",
    "state": "state of a throttle: normal, paused or resuming",
    "status": "status of an HTTP answer",
    "subject": "namespace or topic that a request was about",
    "slow": "requests that were ended because they were slow",
    "target": "address that a client wants to be connected to",
    "tls_port": "TCP port for clients with TLS",
    "top_holders": "keys that hold most of a limiter, with bytes",
    "topic": "Pulsar topic",
    "version": "version of this proxy",
    "waiting": "requests that wait",
    "web_port": "TCP port of the web server",
    "web_tls_port": "TCP port of the web server with TLS",
    "where": "part of the proxy",
    "who": "client of the admin API: user and process at the control socket, else its address",
    "refused": "relays that the native engine had no room for, since the start",
    "thread": "number of a relay thread",
}

SECONDS_BETWEEN_LINES = 1.0
_LONGEST_VALUE = 2048
_LONGEST_TRACEBACK = 16_384
# orjson escapes bytes below 0x20, but not these characters; some viewers end a line at three of them.
_UNSAFE = re.compile("[\x7f-\x9f\u2028\u2029]")

Event = MutableMapping[str, Any]


class LinePace:
    """Limits each kind of event to one line a second, so that a storm is not made worse by its own log."""

    def __init__(self) -> None:
        self._next: dict[str, float] = {}

    def due(self, now: float, kind: str = "") -> bool:
        """Return whether a line of this kind may be written at `now` (seconds); if so, count the line as written."""
        if now < self._next.get(kind, 0.0):
            return False
        self._next[kind] = now + SECONDS_BETWEEN_LINES
        return True


class LineRate:
    """Allows so many lines in each second, and counts the lines that were left out."""

    __slots__ = ("_left_out", "_most", "_second", "_written")

    def __init__(self, lines_a_second: int = 100) -> None:
        self._most = lines_a_second
        self._second = -1
        self._written = 0
        self._left_out = 0

    def due(self, now: float) -> bool:
        """Return whether a line may be written at `now` (seconds); if so, count the line as written."""
        if int(now) != self._second:
            self._second, self._written = int(now), 0
        if self._written >= self._most:
            self._left_out += 1
            return False
        self._written += 1
        return True

    def take_left_out(self) -> int:
        """Return the number of lines that were left out since the last call."""
        left_out, self._left_out = self._left_out, 0
        return left_out


class Sink(BytesLogger):
    """The file of the log lines, and the lowest level that is written, of the whole log or of a component.

    All sinks of a file share its lock, which structlog keeps by file.
    """

    __slots__ = ("_follows", "_whole", "parts", "threshold")

    def __init__(self, file: BinaryIO, threshold: int, whole: "Sink | None" = None) -> None:
        super().__init__(file)
        self.threshold = threshold
        self._whole = whole
        self._follows = whole is not None
        self.parts: dict[str, Sink] = {}

    def part(self, component: str) -> "Sink":
        """Return the sink of a component; until its level is set, the level is that of the whole log."""
        whole = self._whole or self
        found = whole.parts.get(component)
        if found is None:
            found = whole.parts[component] = Sink(whole._file, whole.threshold, whole)
        return found

    def set_threshold(self, threshold: int | None) -> None:
        """Change the lowest level; None: that of the whole log, now and later."""
        if threshold is None and self._whole is not None:
            self._follows, self.threshold = True, self._whole.threshold
            return
        assert threshold is not None
        self._follows, self.threshold = False, threshold
        for part in self.parts.values():
            if part._follows:
                part.threshold = threshold


class Logger(BoundLoggerBase):
    """Writes events: `log.warning("broker refused", broker=address)`; `bind` adds fields to every line.

    All loggers that were bound from the same logger share its level, and a call below that level costs a comparison.
    (structlog's own `make_filtering_bound_logger` would freeze the level at the start.)
    """

    _logger: Sink

    def debug(self, event: str, **fields: Any) -> None:
        """Log a detail of the operation, for developers."""
        if self._logger.threshold <= 10:
            self._proxy_to_logger("debug", event, **fields)

    def info(self, event: str, **fields: Any) -> None:
        """Log a change of the proxy's own state, for operators."""
        if self._logger.threshold <= 20:
            self._proxy_to_logger("info", event, **fields)

    def warning(self, event: str, **fields: Any) -> None:
        """Log a fault outside the proxy, or a refusal, for operators."""
        if self._logger.threshold <= 30:
            self._proxy_to_logger("warning", event, **fields)

    def error(self, event: str, **fields: Any) -> None:
        """Log a failure of the proxy itself; `exc_info=error` adds a traceback."""
        self._proxy_to_logger("error", event, **fields)

    @property
    def level(self) -> str:
        """The lowest level that is written."""
        return next(name for name, number in LEVELS.items() if number == self._logger.threshold)

    def set_level(self, level: str) -> None:
        """Change the level of this logger and of all that share its sink; raise KeyError for an unknown level.

        A component may get `AS_THE_REST`; components with a level of their own keep it when the whole log's changes.
        """
        self._logger.set_threshold(None if level == AS_THE_REST else LEVELS[level])

    def of(self, component: str) -> "Logger":
        """Return the logger of a part of the proxy, whose lines name it and whose level can be set apart."""
        return Logger(self._logger.part(component), self._processors, {**self._context, "component": component})


def open_log(
    level: str = "info",
    log_format: str = "json",
    file: BinaryIO | None = None,
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
) -> Logger:
    """Return a logger that writes to `file` (default: standard error) in the format "json" or "console"."""

    def stamp(_: WrappedLogger, method: str, event: Event) -> Event:
        return {"time": now().isoformat(timespec="milliseconds"), "level": method, **event}

    render = {"json": _render_json, "console": _render_console}[log_format]
    sink = Sink(file if file is not None else sys.stderr.buffer, LEVELS[level])
    return Logger(sink, [stamp, format_exc_info, _hide, _cut, render], {})


def adopt_stdlib_logging(log: Logger) -> None:
    """Send warnings and errors of libraries (asyncio, aiohttp) through `log`: else they break its format."""
    root = logging.getLogger()
    root.handlers[:] = [_Adopted(log)]
    root.setLevel(logging.WARNING)


class _Adopted(logging.Handler):
    def __init__(self, log: Logger) -> None:
        super().__init__()
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        try:
            write = self._log.error if record.levelno >= logging.ERROR else self._log.warning
            # A library may quote what it got, or an exception with that in its repr.
            write(without_tokens(record.getMessage()), logger=record.name, exc_info=record.exc_info)
        except Exception:  # a library's broken format string must not raise in the code that logs
            self.handleError(record)


def _hide(_: WrappedLogger, __: str, event: Event) -> Event:
    """Hide what looks like a credential in a traceback and in the text of its exception."""
    if "exception" in event:
        event["exception"] = without_tokens(event["exception"])
        if isinstance(detail := event.get("detail"), str):
            event["detail"] = without_tokens(detail)
    return event


def _cut(_: WrappedLogger, __: str, event: Event) -> Event:
    for name, value in event.items():
        longest = _LONGEST_TRACEBACK if name == "exception" else _LONGEST_VALUE
        if isinstance(value, list | tuple | dict | set | frozenset):
            written = repr(value)
            if len(written) > longest:
                event[name] = f"{written[:longest]}... ({len(value)} items)"
        elif isinstance(value, str | bytes) and len(value) > longest:
            event[name] = f"{_text(value[:longest])}... ({len(value)} in all)"
    return event


def _render_json(_: WrappedLogger, __: str, event: Event) -> bytes:
    try:
        line = orjson.dumps(event, default=_text)
    except TypeError:  # lone surrogates and numbers beyond 64 bit
        return json.dumps(event, default=_text).encode()
    if line.isascii() and b"\x7f" not in line:
        return line
    return _UNSAFE.sub(_json_escape, line.decode()).encode()


def _json_escape(found: re.Match[str]) -> str:
    return f"\\u{ord(found.group()):04x}"


def _render_console(_: WrappedLogger, __: str, event: Event) -> bytes:
    time, level, what = event.pop("time"), event.pop("level"), event.pop("event")
    traceback = event.pop("exception", None)
    fields = "".join(f" {name}={_plain(value)}" for name, value in event.items())
    lines = [f"{time[11:23]} {level:<7} {_plain(what, quoted=False)}{fields}"]
    if traceback:
        lines += [f"    | {_plain(line, quoted=False)}" for line in traceback.split("\n")]
    return "\n".join(lines).encode(errors="backslashreplace")


def _plain(value: object, *, quoted: bool = True) -> str:
    """Format a value on one line; quotes mark the end of a value with blanks."""
    text = _text(value)
    if not text.isprintable():
        text = "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)
    return f'"{text}"' if quoted and (" " in text or not text) else text


def _text(value: object) -> str:
    return value.decode(errors="backslashreplace") if isinstance(value, bytes) else str(value)
