"""Write proxy.conf and docs/reference/configuration.md from the table of keys."""

import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from proxy.config.keys.key import Key
from scripts.generated import ROOT
from scripts.packaging.key_facts import ORIGINS, facts, sections

# Pages that say how the keys of a section work together.
MORE = {
    "Server": ("behind a load balancer", "behaviour.md#behind-a-load-balancer"),
    "Brokers": ("several brokers", "behaviour.md#several-brokers"),
    "Client connections": ("what a change means", "operations.md#what-a-change-means-for-connected-clients"),
    "TLS": ("TLS", "behaviour.md#tls"),
    "Authentication": ("who is who", "behaviour.md#who-is-who-clients-proxy-brokers"),
    "Topic lists (PIP-442)": ("before a storm", "troubleshooting.md#before-a-storm"),
    "Web ports": ("the admin interface", "behaviour.md#the-admin-interface-and-clients-with-an-http-url"),
    "Sockets": ("slow readers", "behaviour.md#slow-readers"),
    "Operation": ("day to day", "operations.md#day-to-day"),
    "Event log": ("the event log", "behaviour.md#the-event-log"),
}
# A sample file should load as it stands, so the only required key gets an address of a reserved domain.
SAMPLES = {"brokerServiceURL": "pulsar://broker.example:6650"}


def proxy_conf() -> str:
    lines = [
        "# Written by scripts/generate_config.py from the table of keys; do not edit here.",
        "#",
        "# A line without # sets a key; every key shows its default. Environment variables named like a key,",
        "# or PULSAR_PREFIX_<key>, go before this file; flags go before both. `pulsar-proxy check-config`",
        "# names every fault with its line.",
    ]
    for section, keys in sections():
        lines += ["", "", f"### {section}"]
        for key in keys:
            lines += ["", *textwrap.wrap(key.doc, 108, initial_indent="# ", subsequent_indent="# ")]
            lines.append("# " + "; ".join(facts(key)))
            sample = SAMPLES.get(key.name)
            lines.append(f"{key.name}={sample}" if sample else f"#{key.name}={key.default_text}")
    return "\n".join(lines) + "\n"


def reference() -> str:
    lines = [
        "<!-- Written by scripts/generate_config.py from the table of keys; do not edit here. -->",
        "",
        "# Configuration",
        "",
        "Each source overrides the one before: the defaults below, the file (`--config`), the environment",
        "(`<key>` or `PULSAR_PREFIX_<key>`; the prefixed name wins), flags. The file has the syntax of Java",
        "properties, as the Java proxy's has. A blank number keeps its default.",
        "",
        "*Live* marks keys that SIGHUP changes without a restart. The effect on connected clients and on memory in use",
        "is described in [operations](../operations.md#what-a-change-means-for-connected-clients).",
    ]
    for section, keys in sections():
        lines += [
            "",
            f"## {section}",
            "",
            *more(section),
            "| key | default | unit | live | meaning |",
            "|---|---|---|---|---|",
        ]
        lines += [row(key) for key in keys]
    return "\n".join(lines) + "\n"


def more(section: str) -> list[str]:
    if section not in MORE:
        return []
    title, page = MORE[section]
    return [f"How these keys work together: [{title}](../{page}).", ""]


def row(key: Key[Any]) -> str:
    default = "**required**" if key.required else f"`{key.default_text}`" if key.default_text else "(empty)"
    expected = key.kind.expected
    # The scheme of a URL keeps its lower case.
    expected = f"Form: {expected}" if "://" in expected.split()[0] else expected[0].upper() + expected[1:]
    meaning = f"{key.doc} {expected}. *{ORIGINS[key.since]}*".replace("|", "\\|")
    return f"| `{key.name}` | {default} | {key.unit} | {'yes' if key.dynamic else ''} | {meaning} |"


def files() -> Mapping[Path, str]:
    return {ROOT / "proxy.conf": proxy_conf(), ROOT / "docs/reference/configuration.md": reference()}
