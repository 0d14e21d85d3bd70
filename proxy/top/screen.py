"""Write the document of `pulsar-proxy top` as lines for people.

Rule: names come from clients, so nothing unprintable reaches a terminal, and no line is wider than asked for. A
document of a newer proxy may have more in it: what is not known here is passed over.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

Document = Mapping[str, Any]

BAR_WIDTH: Final = 20
NAME_WIDTH: Final = 44
_MIB: Final = 1024 * 1024
# The settings that an operator compares with what is seen above them.
_CONFIG: Final = (
    "topicListFairness",
    "maxTopicListInFlightHeapMemSizeMB",
    "maxTopicListInFlightDirectMemSizeMB",
    "maxConcurrentInboundConnections",
    "maxConcurrentLookupRequests",
)


def render(document: Document, columns: int) -> list[str]:
    """Give the screen, each line at most `columns` wide."""
    return [_plain(line)[:columns] for part in _PARTS for line in part(document)]


def _proxy(document: Document) -> Iterator[str]:
    proxy, memory = document["proxy"], document["memory"]
    yield (
        f"pulsar-proxy {proxy['version']}  pid {proxy['pid']}  {proxy['address']}  cluster {proxy['cluster'] or '-'}"
        f"  {proxy['state']}  up {_duration(proxy['uptime_seconds'])}"
    )
    container = memory["container_limit_bytes"]
    yield (
        f"memory   {_mib(memory['resident_bytes'])} resident, peak {_mib(memory['peak_bytes'])},"
        f" budget {_mib(memory['budget_bytes'])}, container {'no limit' if container is None else _mib(container)}"
    )


def _connections(document: Document) -> Iterator[str]:
    clients = document["clients"]
    yield (
        f"clients  {clients['lookup_mode']} in lookup mode, {clients['relayed']} relayed;"
        f" accepted {clients['accepted']}, rejected {clients['rejected']}"
    )
    yield f"brokers  {_counts(document['broker_connections'])}"


def _limiters(document: Document) -> Iterator[str]:
    yield ""
    for name, books in document["limiters"].items():
        held, limit = books["held_bytes"], books["limit_bytes"]
        yield (
            f"{name:<8} {_bar(held, limit)} {_mib(held)} of {_mib(limit) if limit > 0 else 'no limit'},"
            f" peak {_mib(books['peak_held_bytes'])}"
        )
        yield (
            f"         queue {books['queue_size']}/{books['queue_max_size'] or 'no limit'},"
            f" growing {books['growers_waiting']}, wait p50 {_millis(books['wait_p50_ms'])}"
            f" p99 {_millis(books['wait_p99_ms'])}; timed out {books['timed_out']}, queue full {books['queue_full']},"
            f" overshoots {books['overshoots']}"
        )


def _lists(document: Document) -> Iterator[str]:
    lists = document["lists"]
    rates = lists["per_second"]
    yield ""
    outcomes = (f"{name} {count} ({rates.get(name, 0.0):.1f}/s)" for name, count in lists["outcomes"].items() if count)
    yield f"lists    asked {lists['asked']}; " + ", ".join(outcomes)
    yield f"slow     readers closed: {_counts(document['slow_readers_closed'])}"
    if document["watches"]:
        yield f"watches  {_counts(document['watches'])}"


def _usage(document: Document) -> Iterator[str]:
    usage = document["usage"]
    for title, rows in (("NAMESPACE", usage["namespaces"]), ("PRINCIPAL", usage["principals"])):
        yield ""
        yield f"{title:<{NAME_WIDTH}} {'MiB x s':>12} {'MiB sent':>12} {'refused':>9}"
        for row in rows:
            yield (
                f"{_cut(row['name'], NAME_WIDTH):<{NAME_WIDTH}} {row['byte_seconds'] / _MIB:>12.1f}"
                f" {row['sent_bytes'] / _MIB:>12.1f} {row['refused']:>9.0f}"
            )
    yield f"(what was used halves every {usage['half_life_seconds']:g} s)"


def _refusals(document: Document) -> Iterator[str]:
    yield ""
    yield "LAST REFUSALS" if document["refusals"] else "no refusals"
    for refusal in document["refusals"]:
        asked = "" if refusal["asked"] is None else f" asked {_mib(refusal['asked'])},"
        holders = ", ".join(f"{_cut(name, NAME_WIDTH)} {_mib(held)}" for name, held in refusal["top_holders"])
        yield (
            f"{time.strftime('%H:%M:%S', time.localtime(refusal['time']))} {refusal['stage']}"
            f" {refusal['client']} {_cut(refusal['subject'], NAME_WIDTH)}:{asked} held {_mib(refusal['held'])}"
            f" of {_mib(refusal['limit'])}, queue {refusal['queued']}; change {refusal['change']}"
            + (f"; holders {holders}" if holders else "")
        )


def _config(document: Document) -> Iterator[str]:
    config = document["config"]
    yield ""
    yield "config   " + ", ".join(f"{name}={config[name]}" for name in _CONFIG if name in config)
    if document["restart_needed"]:
        yield f"restart  needed for {', '.join(document['restart_needed'])}"


_PARTS: Final[Sequence[Callable[[Document], Iterator[str]]]] = (
    _proxy,
    _connections,
    _limiters,
    _lists,
    _config,
    _usage,
    _refusals,
)


def _plain(line: str) -> str:
    return line if line.isprintable() else "".join(char if char.isprintable() else "?" for char in line)


def _cut(name: str, width: int) -> str:
    return name if len(name) <= width else f"{name[: width - 3]}..."


def _counts(counts: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {count:.0f}" for name, count in counts.items())


def _mib(count: float | None) -> str:
    return "?" if count is None else f"{count / _MIB:.1f} MiB"


def _millis(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f} ms"


def _bar(held: int, limit: int) -> str:
    full = min(BAR_WIDTH, round(BAR_WIDTH * held / limit)) if limit > 0 else 0
    return f"[{'#' * full}{'.' * (BAR_WIDTH - full)}]"


def _duration(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    parts = [f"{days}d" if days else "", f"{hours}h" if days or hours else "", f"{minutes}m" if minutes else ""]
    return " ".join([part for part in parts if part] + ([] if days else [f"{rest}s"]))
