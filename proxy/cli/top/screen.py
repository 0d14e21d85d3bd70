"""Format the document of `pulsar-proxy top` as lines of text: `proxy/app/top_document.py` makes the document.

Rules: clients choose their names, which may not harm a terminal (`terminal_text.py`). No line is wider than
`columns`. 80 columns and 24 lines show both limiters, the outcomes, the heaviest users and the last refusals; larger
screens show more. Fields of a newer proxy are ignored.
"""

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from proxy.cli.admin.terminal_text import cut, pad, plain, width

Document = Mapping[str, Any]

BAR_WIDTH: Final = 20
NAME_WIDTH: Final = 44
# Rows of namespaces, principals and refusals that are shown before any optional part.
FIRST_ROWS: Final = (3, 2, 3)
_MIB: Final = 1024 * 1024
_INDENT: Final = 9
_TOPICS_SHOWN: Final = 3
# The common prefix of all keys of both memory limiters; a narrow line leaves it out.
_COMMON_KEY: Final = "maxTopicListInFlight"
_LEAST_CLIENT_WIDTH: Final = 21
# The keys that an operator compares with the numbers above them.
_CONFIG: Final = (
    "topicListFairness",
    "maxTopicListInFlightHeapMemSizeMB",
    "maxTopicListInFlightDirectMemSizeMB",
    "maxConcurrentInboundConnections",
    "maxConcurrentLookupRequests",
)


def render(document: Document, columns: int, lines: int | None = None) -> list[str]:
    """Return the screen's lines, at most `columns` wide: at most `lines` of them, or all if None."""
    head = list(_head(document, columns))
    tables = list(_tables(document, columns))
    if lines is None:
        kept, rows, blanks = head, [len(table) - 1 for table in tables], len(tables)
    else:
        kept, rows, blanks = _fit(head, tables, lines)
    screen = [line for _, part in kept for line in part]
    for number, (table, count) in enumerate(zip(tables, rows, strict=True)):
        screen += [""] * (number < blanks) + table[: 1 + count]
    return [cut(plain(line), columns, end="") for line in screen[:lines]]


def _fit(
    head: list[tuple[int, list[str]]], tables: list[list[str]], lines: int
) -> tuple[list[tuple[int, list[str]]], list[int], int]:
    """Return what fits on `lines`: parts of the head, the number of rows of each table, the number of blank lines."""
    have = [len(table) - 1 for table in tables]
    rows = [min(first, count) for first, count in zip(FIRST_ROWS, have, strict=True)]
    room = lines - len(tables) - sum(rows)
    kept = set()
    for number, (_, part) in sorted(enumerate(head), key=lambda entry: entry[1][0]):
        if len(part) <= room:
            kept.add(number)
            room -= len(part)
    while room > 0 and rows != have:
        for table in range(len(tables)):
            if room > 0 and rows[table] < have[table]:
                rows[table] += 1
                room -= 1
    return [part for number, part in enumerate(head) if number in kept], rows, max(0, min(room, len(tables)))


def _head(document: Document, columns: int) -> Iterator[tuple[int, list[str]]]:
    """Yield the parts above the tables, each with its rank; the part with the greatest rank is left out first."""
    lists, clients = document["lists"], document["clients"]
    yield 0, list(_proxy(document))
    found = [f"{clients['lookup_mode']} in lookup mode", f"{clients['relayed']} relayed"]
    yield 0, _fold("clients", [*found, f"accepted {clients['accepted']}", f"rejected {clients['rejected']}"], columns)
    if older := clients.get("unbounded_receive_buffers"):
        yield 3, _fold("", [f"{older} came before their receive buffers were bounded"], columns)
    yield 2, _fold("brokers", [*_broker_states(document), *_counts(document["broker_connections"])], columns)
    for name, limiter in document["limiters"].items():
        yield 0, [_bar_line(name, limiter), *_fold("", _waits(limiter), columns)]
    # A proxy before this row, or without a directory, has no lists on disk.
    if (spill := document.get("spill", {})).get("limit_bytes"):
        yield 2, [_disk_line(spill), *_fold("", _disk_counts(spill), columns)]
    if relays := document.get("relays"):
        yield 3, [*_pool_line(relays), *_fold("relays", _relay_counts(relays), columns)]
    # A proxy before this row, or without a throttle, has none.
    if overload := document.get("overload"):
        yield 1, _overload(overload, columns)
    outcomes = (_outcome(name, count, lists["per_second"]) for name, count in lists["outcomes"].items() if count)
    yield 0, _fold("lists", [f"asked {lists['asked']}", *outcomes], columns)
    yield 3, _fold("closed", [f"slow readers: {text}" for text in _counts(document["slow_readers_closed"])], columns)
    yield 4, _fold("watches", _counts(document["watches"]), columns)
    yield 1, _fold("restart", [f"needed for {name}" for name in document["restart_needed"]], columns)
    config = document["config"]
    yield 5, _fold("config", [f"{name}={config[name]}" for name in _CONFIG if name in config], columns)


def _proxy(document: Document) -> Iterator[str]:
    proxy, memory = document["proxy"], document["memory"]
    # An older proxy does not say whether it accepts.
    state = proxy["state"] if proxy.get("accepting", True) else f"{proxy['state']}, paused"
    yield (
        f"pulsar-proxy {proxy['version']}  {state}  up {_duration(proxy['uptime_seconds'])}"
        f"  pid {proxy['pid']}  {proxy['address']}  cluster {proxy['cluster'] or '-'}"
        f"{_relays(proxy)}"
    )
    container = memory["container_limit_bytes"]
    yield (
        f"memory   MiB: resident {_mib(memory['resident_bytes'])}, peak {_mib(memory['peak_bytes'])},"
        f" budget {_mib(memory['budget_bytes'])}, container {'no limit' if container is None else _mib(container)}"
    )


def _relays(proxy: Document) -> str:
    """Return the threads of relays; a proxy of an older version does not say, one without the extension has none."""
    threads = proxy.get("relay_threads")
    return f"  {threads} relay thread{'s' * (threads > 1)}" if threads else ""


def _bar_line(name: str, limiter: Document) -> str:
    held, limit = limiter["held_bytes"], limiter["limit_bytes"]
    most = f"{_mib(limit)} MiB" if limit > 0 else "no limit"
    return f"{name:<8} {_bar(held, limit)} {_mib(held)} of {most}, peak {_mib(limiter['peak_held_bytes'])} MiB"


def _pool_line(relays: Document) -> Iterator[str]:
    if limit := relays["sockets_limit_bytes"]:
        used = relays["sockets_to_brokers_bytes"] + relays["sockets_to_clients_bytes"]
        yield f"{'sockets':<8} {_bar(used, limit)} {_mib(used)} of {_mib(limit)} MiB, {relays['sockets_ended']} ended"
    if limit := relays["pool_limit_bytes"]:
        used = relays["pool_used_bytes"]
        yield f"{'pool':<8} {_bar(used, limit)} {_mib(used)} of {_mib(limit)} MiB, {relays['muted']} muted"


def _broker_states(document: Document) -> Iterator[str]:
    """Yield how many brokers are in which state if not all are up, and the error of the first that has one."""
    brokers = document.get("brokers", ())
    states = Counter(broker["state"] for broker in brokers)
    if states.keys() <= {"up"}:
        return
    yield ", ".join(f"{count} {state}" for state, count in states.items())
    for broker in brokers:
        if broker["error"]:
            yield f"{plain(broker['error'])}, for {_duration(broker['seconds'])}"
            return


def _relay_counts(relays: Document) -> Iterator[str]:
    yield f"sockets to brokers {_mib(relays['sockets_to_brokers_bytes'])} MiB"
    yield f"to clients {_mib(relays['sockets_to_clients_bytes'])} MiB"
    if relays["pool_limit_bytes"]:
        yield f"muted {relays['muted_seconds']:.0f} s"
        yield f"used up {relays['depleted_seconds']:.0f} s"
        yield f"overshoots {relays['overshoots']}"


def _overload(overload: Document, columns: int) -> list[str]:
    """Return the lines of the throttles: signals, marks, who is paused and why, and the topics that send most."""
    signals, marks, connections = overload["signals"], overload["marks"], overload["connections"]
    delay = overload["delay_seconds"]
    first = [
        *([overload["state"]] if overload["state"] else []),
        *(f"{name} {'?' if signals[name] is None else format(signals[name], '.2f')}" for name in ("proxy", "brokers")),
        "marks " + " ".join(f"{name.replace('_', ' ')} {mark:.2f}" for name, mark in marks.items()),
        f"{connections['paused']} paused, longest {overload['longest_pause_seconds']:.0f} s",
        *([f"{connections['would_pause']} would be"] if connections["would_pause"] else []),
        *(f"{reason} {count}" for reason, count in overload["stopped_relays"].items() if count),
        f"delay {delay.get('median', 0.0):.1f} s, longest {delay.get('longest', 0.0):.1f} s",
        f"evaluated {overload['age_seconds']:.1f} s ago",
    ]
    lines = _fold("overload", first, columns)
    if overload["memory_pressure"] is not None:
        shown = [f"pressure {overload['memory_pressure']:.2f}", f"{overload['active_topics']} topics slowed"]
        rates = [
            f"{_name(row['topic'])} {_mib(row['allowed'])} of {_mib(row['natural'])} MiB/s"
            for row in overload["topics"][:_TOPICS_SHOWN]
        ]
        lines += _fold("rates", [*shown, *rates], columns)
    return lines


def _disk_line(spill: Document) -> str:
    held, limit = spill["held_bytes"], spill["limit_bytes"]
    return f"{'disk':<8} {_bar(held, limit)} {_mib(held)} of {_mib(limit)} MiB, {spill['files']} lists"


def _disk_counts(spill: Document) -> Iterator[str]:
    yield f"moved {spill['moved_lists']}"
    yield f"written {_mib(spill['written_bytes'])} MiB"
    yield f"read {_mib(spill['read_bytes'])} MiB"
    for name, count in spill.items():
        if count and (name.startswith("kept_") or name == "read_errors"):
            yield f"{name.replace('_', ' ')} {count}"


def _waits(limiter: Document) -> Iterator[str]:
    yield f"queue {limiter['queue_size']}/{limiter['queue_max_size'] or 'no limit'}"
    yield f"growing {limiter['growers_waiting']}"
    yield f"wait p50 {_millis(limiter['wait_p50_ms'])} p99 {_millis(limiter['wait_p99_ms'])}"
    for title in ("timed out", "queue full", "overshoots"):
        if count := limiter[title.replace(" ", "_")]:
            yield f"{title} {count}"


def _outcome(name: str, count: int, rates: Mapping[str, float]) -> str:
    rate = rates.get(name, 0.0)
    return f"{name} {count} ({rate:.1f}/s)" if rate else f"{name} {count}"


def _tables(document: Document, columns: int) -> Iterator[list[str]]:
    """Yield the tables of namespaces, principals and refusals, each with a title line."""
    usage = document["usage"]
    halves = f" (halves in {usage['half_life_seconds']:g} s)"
    for title, rows in ((f"NAMESPACE{halves}", usage["namespaces"]), (f"PRINCIPAL{halves}", usage["principals"])):
        yield [f"{title:<{NAME_WIDTH}} {'MiB x s':>12} {'MiB sent':>12} {'refused':>9}", *map(_usage_row, rows)]
    refusals = document["refusals"]
    title = "LAST REFUSALS  waited for, client, key to change" if refusals else "no refusals"
    yield [title, *(_refusal_row(refusal, columns) for refusal in refusals)]


def _usage_row(row: Document) -> str:
    return (
        f"{pad(_name(row['name']), NAME_WIDTH)} {row['byte_seconds'] / _MIB:>12.1f}"
        f" {row['sent_bytes'] / _MIB:>12.1f} {row['refused']:>9.0f}"
    )


def _refusal_row(refusal: Document, columns: int) -> str:
    begin = f"{time.strftime('%H:%M:%S', time.localtime(refusal['time']))} {refusal['stage']}"
    key, client = refusal["change"], plain(refusal["client"])
    if columns - len(begin) - len(key) - 2 < min(width(client), _LEAST_CLIENT_WIDTH):
        key = key.replace(_COMMON_KEY, "..", 1)
    # The key says which setting to change, so a long client address is shortened first.
    client = cut(client, max(_LEAST_CLIENT_WIDTH, columns - len(begin) - len(key) - 2))
    holders = ", ".join(f"{_name(name)} {_mib(held)}" for name, held in refusal["top_holders"])
    numbers = _limiter_state(refusal) if refusal["limiter"] is not None else _numbers(refusal)
    return f"{begin} {client} {key} {_name(refusal['subject'])}: {numbers}" + (
        f"; holders (MiB) {holders}" if holders else ""
    )


def _limiter_state(refusal: Document) -> str:
    asked = "" if refusal["asked"] is None else f"asked {_mib(refusal['asked'])}, "
    return f"{asked}held {_mib(refusal['held'])} of {_mib(refusal['limit'])} MiB, queue {refusal['queued']}"


def _numbers(refusal: Document) -> str:
    return "-" if refusal["limit"] is None else f"asked {refusal['asked']}, limit {refusal['limit']}"


def _name(text: str) -> str:
    return cut(plain(text), NAME_WIDTH)


def _fold(title: str, parts: Iterable[str], columns: int) -> list[str]:
    """Join `parts` after `title`, on as many lines as they need; no line without parts."""
    lines: list[str] = []
    for part in parts:
        if lines and len(lines[-1]) + len(part) + 3 <= columns:
            lines[-1] += f", {part}"
        else:
            lines.append(f"{'' if lines else title:<{_INDENT}}{part}")
    return lines


def _counts(counts: Mapping[str, float]) -> Sequence[str]:
    return [f"{name} {count:.0f}" for name, count in counts.items() if count]


def _mib(count: float | None) -> str:
    return "?" if count is None else f"{count / _MIB:.1f}"


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
