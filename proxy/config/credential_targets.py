"""Say which hosts may get secret credentials, the proxy's own and those of clients, as far as the configuration tells.

Credentials of every plugin but none and TLS are secret, and so are those of clients that the proxy forwards: a host
that gets them can use them on every broker.
`proxy.brokers.gate` applies these rules to each connection; `check-config` and the charts use the same words.
"""

import ipaddress
import re
from collections.abc import Iterable
from typing import Any, Final
from urllib.parse import urlsplit

from proxy.config.credential_parameters import is_secret, shown_certificate
from proxy.config.keys.key import Key
from proxy.config.keys.networks import is_loopback, networks_in
from proxy.config.keys_table import ConfigKeys
from proxy.config.values import ConfigValues

# A wildcard stands for dots as well: unless a domain's name is behind it, it lets in domains or addresses of anybody.
# The last label of a domain begins with a letter (RFC 1123, 2.1); the dot of the root may follow.
_NARROW: Final = re.compile(r"[^*?\[\]]+|.*\.[^\W\d_][^.*?\[\]]*\.?")
# Networks of one owner have as many bits in common, or more: 10.0.0.0/8 and fc00::/7 are the largest.
_OWNED_BITS: Final = 7


def secret_keys(config: ConfigValues) -> tuple[Key[Any], ...]:
    """Return the keys by which brokers get secret credentials: the proxy's own, and those of its clients."""
    found: list[Key[Any]] = []
    if is_secret(config.broker_client_authentication_plugin):
        found.append(ConfigKeys.broker_client_authentication_plugin)
    if config.forwards_credentials:
        found.append(ConfigKeys.forward_authorization_credentials)
    return tuple(found)


def withholds(config: ConfigValues) -> bool:
    """Return whether secret credentials are withheld from hosts that are not known to be brokers."""
    return bool(secret_keys(config)) and not config.broker_proxy_credentials_to_any_target


def plain_targets(config: ConfigValues) -> tuple[str, ...]:
    """Return the keys whose brokers get secret credentials over a network without TLS; loopback is no network."""
    if not secret_keys(config) or config.tls_enabled_with_broker:
        return ()
    # A wrong URL is refused, and nothing is said of it here.
    hosts = [host for host, _ in config.broker_hosts] if config.broker_service_url else []
    given = {ConfigKeys.broker_service_url.name: hosts}
    for key in (ConfigKeys.broker_web_service_url, ConfigKeys.function_worker_web_service_url):
        plain = [url for url in config.value(key) if url.startswith("http:")]
        given[key.name] = [urlsplit(url).hostname or "" for url in plain]
    return tuple(name for name, hosts in given.items() if not all(map(is_loopback, hosts)))


def narrowed_hosts(patterns: Iterable[str]) -> bool:
    """Return whether there are patterns of host names, and those with a wildcard end in a domain's name."""
    given = [pattern.strip() for pattern in patterns if pattern.strip()]
    return bool(given) and all(map(_NARROW.fullmatch, given))


def narrowed_networks(networks: Iterable[str]) -> bool:
    """Return whether there are networks, and together they have no part of the address space that nobody owns."""
    given = [text.strip() for text in networks if text.strip()]
    if not given or "*" in given:
        return False
    parts = [part for text in given for part in networks_in(text)]
    fours = ipaddress.collapse_addresses(part for part in parts if isinstance(part, ipaddress.IPv4Network))
    sixes = ipaddress.collapse_addresses(part for part in parts if isinstance(part, ipaddress.IPv6Network))
    together: list[ipaddress.IPv4Network | ipaddress.IPv6Network] = [*fours, *sixes]
    return all(part.prefixlen >= _OWNED_BITS for part in together)


def narrowed_keys(config: ConfigValues) -> tuple[str, ...]:
    """Return the names of the keys by which the operator has narrowed the targets."""
    hosts, networks = ConfigKeys.broker_proxy_allowed_host_names, ConfigKeys.broker_proxy_allowed_ip_addresses
    found = []
    if narrowed_hosts(config.broker_proxy_allowed_host_names):
        found.append(hosts.name)
    if narrowed_networks(config.broker_proxy_allowed_ip_addresses):
        found.append(networks.name)
    return tuple(found)


def list_urls(config: ConfigValues) -> tuple[str, ...]:
    """Return the web services that may be asked for the brokers' own list; none if no list is needed."""
    if not withholds(config) or config.check_active_brokers:
        return ()
    return config.value(url_keys(config)[1])


def list_is_shown(config: ConfigValues) -> bool:
    """Return whether the brokers' list may be counted on, if it is asked for.

    Where clients authenticate, each CONNECT to a broker names its client. Brokers that authorize take that from a role
    in their `proxyRoles` only, and show such a role no list, because the question speaks for no client.
    """
    return bool(list_urls(config)) and not config.authentication_enabled


def url_keys(config: ConfigValues) -> tuple[Key[str], Key[tuple[str, ...]]]:
    """Return the keys of the brokers' URLs and of their web services' URLs, as they are spoken to: with TLS or not."""
    if config.tls_enabled_with_broker:
        return ConfigKeys.broker_service_url_tls, ConfigKeys.broker_web_service_url_tls
    return ConfigKeys.broker_service_url, ConfigKeys.broker_web_service_url


def explained(config: ConfigValues) -> list[str]:
    """Return lines that say who gets credentials; none where there is nothing to say."""
    return [*_of_secrets(config), *_of_certificate(config)]


def _of_certificate(config: ConfigValues) -> list[str]:
    """Return a line that says who is not shown a certificate."""
    web = config.broker_web_service_url_tls or config.function_worker_web_service_url_tls
    plugin, parameters = config.broker_client_authentication_plugin, config.broker_client_authentication_parameters
    certificate = config.broker_client_certificate()
    key = certificate.name
    if shown_certificate(plugin, parameters) is not None:
        key = ConfigKeys.broker_client_authentication_plugin.name
    elif not config.value(certificate):
        return []
    if config.authentication_enabled or not (config.tls_enabled_with_broker and config.has_web_port and web):
        return []
    authenticates = ConfigKeys.authentication_enabled.name
    return [
        f"certificate ({key}) is not shown for requests over HTTP: their clients have no role ({authenticates}=false); "
        "a web service of a broker that demands one is not reached"
    ]


def _of_secrets(config: ConfigValues) -> list[str]:
    names = ", ".join(key.name for key in secret_keys(config))
    if not names:
        return []
    if config.broker_proxy_credentials_to_any_target:
        key = ConfigKeys.broker_proxy_credentials_to_any_target.name
        return [f"credentials ({names}) go to every target that a client may name ({key}=true)"]
    urls, web = url_keys(config)
    lines = [f"credentials ({names}) go only to these brokers:"]
    lines.append(f"  (a) in force: those of {urls.name}, and the addresses of its names at their ports")
    if config.check_active_brokers:
        return [*lines, f"  (b), (c), (d) not in force: {ConfigKeys.check_active_brokers.name}=true"]
    lines.append("  (b) in force: those that lookup answers of known brokers named to this process")
    authenticates = f"{ConfigKeys.authentication_enabled.name}=true"
    if not list_urls(config):
        lines.append(f"  (c) not in force: the list of the brokers is not asked for ({web.name} is empty)")
    elif list_is_shown(config):
        lines.append(f"  (c) in force, if the proxy's role may read the list: those in the list of {web.name}")
    else:
        lines.append(
            f"  (c) not to be counted on ({authenticates}): the list of {web.name} is asked for, but brokers that "
            "authorize show it to no role in their proxyRoles, where the proxy's must be"
        )
    narrowed = narrowed_keys(config)
    hosts, networks = ConfigKeys.broker_proxy_allowed_host_names, ConfigKeys.broker_proxy_allowed_ip_addresses
    lines.append(
        f"  (d) in force: targets inside {' and '.join(narrowed)}"
        if narrowed
        else f"  (d) not in force: neither {hosts.name} nor {networks.name} is narrowed"
    )
    return lines
