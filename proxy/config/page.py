"""The configuration in force as a document: each value, its source, and the values that wait for a restart.

Rule: secrets are hidden (`proxy.core.secrets`), in waiting values as well.
"""

from collections.abc import Mapping

from proxy.config.config import Config
from proxy.core.secrets import masked


def config_document(config: Config, pending: Mapping[str, str]) -> Mapping[str, object]:
    """Return the document for /config and `pulsar-proxy config`; `pending` has the waiting values by key."""
    keys = {}
    for key, shown, origin in config.items():
        entry: dict[str, object] = {
            "value": shown,
            "origin": origin,
            "source": config.place(key),
            "dynamic": key.dynamic,
        }
        if key.name in pending:
            entry["pending_restart"] = pending[key.name]
        keys[key.name] = entry
    routes = [
        {"name": route.name, "path": route.path, "proxyTo": masked(route.proxy_to)}
        for route in config.http_reverse_proxies
    ]
    return {"keys": keys, "http_reverse_proxies": routes, "restart_needed": sorted(pending)}


def pending_values(config: Config, newer: Config) -> Mapping[str, str]:
    """Return the values of `newer` that are not in force because their keys need a restart, with secrets hidden."""
    waiting = (key for key in config.differences(newer) if not key.dynamic)
    return {key.name: key.shown(newer.value(key)) for key in waiting}
