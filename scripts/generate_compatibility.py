"""Write docs/compatibility.md from the tables of keys, metrics, documents and what the Java proxy has besides."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, cast

from proxy.app.metrics.table import INSTRUMENTS
from proxy.config.config import Config
from proxy.config.java_keys import JAVA_ONLY, JAVA_ONLY_PREFIXES, METADATA_STORES, JavaKey
from proxy.config.java_surface import JAVA_DEFAULTS, JAVA_ENDPOINTS, JAVA_METRICS, Parity
from proxy.config.keys.key import Key
from proxy.core.instrument import Instrument
from proxy.web.stats import StatsSources, stats_documents
from scripts.generated import ROOT

PAGE = ROOT / "docs/compatibility.md"
INTRODUCTION = """\
<!-- Written by scripts/generate_compatibility.py from the tables of keys, metrics and pages; do not edit here. -->

# Compatibility with the Java proxy

Every key of `proxy.conf`, metric and HTTP endpoint of the Java proxy 5.0, with what becomes of it here: *same*;
*better*, and how; or *not supported*, and what the start says. How to change over, and back: [migrate.md](migrate.md).
What is new here: [reference/configuration.md](reference/configuration.md),
[reference/metrics.md](reference/metrics.md).

Where the wire is concerned, clients and brokers see what the Java proxy would send them; each difference that is wanted
is listed in [migrate.md](migrate.md#what-clients-see).
"""
KEYS = """\
## Keys

A file of the Java proxy's loads here as it stands, be it of 4.x or of 5.0. Defaults are those of 5.0, with the default
of 4.x in brackets where that is another. *live*: SIGHUP changes it without a restart, which the Java proxy
needs for each. A key that is not supported is passed over in silence at the Java proxy's default, that of 4.x or of
5.0. Changed, it is *warned* about at the start (`the Java proxy knows this key, this proxy does not: ignored; ...`), or
*refused* with an error and exit code 2, if the proxy would otherwise let in or reach more than its operator asked for,
or use cryptography that they have ruled out.

What the Java proxy leaves without a bound has one here by default: the memory of relays (`relayMemoryPoolMB`, on at
128; `-1` is off, as in KIP-72), their sockets, and send buffers. [migrate.md](migrate.md) has each, and how to have it
as before.
"""
METRICS = """\
## Metrics

Each sample has the label `cluster`. Counters come as `<name>_total` and, but for those of authentication,
`<name>_created`.
"""
ENDPOINTS = """\
## HTTP endpoints

With `authenticationEnabled` all but /status.html, /healthz and /readyz need credentials (/metrics unless
`authenticateMetricsEndpoint=false`), and with `authorizationEnabled` /proxy-stats and /config one of `superUserRoles`.
"""


def shown(default: str | None) -> str:
    return "no such key" if default is None else f"`{default}`" if default else "(empty)"


def beside(name: str, ours: str | None) -> str:
    """Return what the Java proxy's versions have, where it is not what they have in common, or not ours."""
    of_4, of_5 = JAVA_DEFAULTS.get(name, (ours, ours))
    said = [f"{version}: {shown(default)}" for version, default in (("5.0", of_5), ("4.x", of_4)) if default != ours]
    return f" ({', '.join(said)})" if said else ""


def key_row(key: Key[Any]) -> str:
    better = [text for text in (key.better, "live" if key.dynamic and key.since == "pulsar" else "") if text]
    verdict = f"better: {'; '.join(better)}" if better else "same"
    less = f"; not supported: {key.less}" if key.less else ""
    return f"| `{key.name}` | {shown(key.default_text)}{beside(key.name, key.default_text)} | {verdict}{less} |"


def java_key_row(name: str, key: JavaKey) -> str:
    default = "(depends on the machine)" if key.default is None else shown(key.default) + beside(name, key.default)
    said = "refused" if key.refused else "refused without a URL of brokers" if name in METADATA_STORES else "warned"
    but = f" ({', '.join(key.warned)}: warned)" if key.warned else ""
    return f"| `{name}` | {default} | not supported, {said}{but}: {key.why} |"


def keys() -> Iterator[str]:
    rows = {key.name: key_row(key) for key in Config.keys() if key.since != "ours"}  # noqa: SIM118
    rows |= {name: java_key_row(name, key) for name, key in JAVA_ONLY.items()}
    yield from ("| key | default | here |", "|---|---|---|")
    yield from (rows[name] for name in sorted(rows, key=str.lower))
    yield "| `httpReverseProxy.<name>.path`, `httpReverseProxy.<name>.proxyTo` | (empty) | same |"
    for prefix, why in JAVA_ONLY_PREFIXES.items():
        yield f"| `{prefix}...` | (empty) | not supported, warned: {why} |"


def metric_row(instrument: Instrument) -> str:
    return f"| `{instrument.exposed_name}` | {f'better: {instrument.better}' if instrument.better else 'same'} |"


def parity_rows(entries: Iterable[Parity]) -> Iterator[str]:
    for entry in entries:
        yield f"| {entry.name} | {entry.verdict}{': ' if entry.how else ''}{entry.how} |"


def metrics() -> Iterator[str]:
    yield from ("| metric | here |", "|---|---|")
    yield from (metric_row(instrument) for instrument in INSTRUMENTS if instrument.origin != "ours")
    yield from parity_rows(JAVA_METRICS)


def endpoints() -> Iterator[str]:
    yield from ("| endpoint | here |", "|---|---|")
    # The table is wanted, nothing is asked of it.
    for document in stats_documents(cast(StatsSources, None)):
        how = f"better: {document.better}" if document.better else "same"
        yield f"| {document.method} {document.path} | {how} |"
    yield from parity_rows(JAVA_ENDPOINTS)


def page() -> str:
    lines = [INTRODUCTION, KEYS, *keys(), "", METRICS, *metrics(), "", ENDPOINTS, *endpoints()]
    return "\n".join(lines) + "\n"


def files() -> Mapping[Path, str]:
    return {PAGE: page()}
