"""The fairness key of a request: the key that the limiter charges for memory and shares it by (`topicListFairness`)."""

from collections.abc import Callable, Hashable
from typing import Final, Protocol

from proxy.auth.identity import Principal
from proxy.core.addresses import host_network

# A key with a deficit outlives its request, and clients choose the length of a namespace's name.
LONGEST_KEY: Final = 256


class ChargedClient(Protocol):
    """A client of the binary or web port, which can be charged for memory."""

    @property
    def principal(self) -> Hashable:
        """The authenticated principal; None if the client is not authenticated."""

    @property
    def name(self) -> str:
        """The name of the connection."""


class FairnessKeys:
    """Finds the fairness key of a request; `fairness` may change, and memory then stays charged to its old key."""

    def __init__(self, fairness: str) -> None:
        self.fairness = fairness

    def key(self, client: ChargedClient, namespace: str | None) -> Hashable:
        """Return the key for a request about `namespace`, which is None if the request is not about one namespace."""
        if self.fairness == "principal":
            return role_of(client.principal)
        if namespace is None or self.fairness == "connection":
            return client.name
        key = namespace.partition("/")[0] if self.fairness == "tenant" else namespace
        return key[:LONGEST_KEY]

    def share_key(self, client: ChargedClient, namespace: str | None) -> Hashable:
        """Return the key that takes turns in the shares of unproven readers: the network, where all are in one line."""
        if self.fairness != "fifo":
            return self.key(client, namespace)
        return host_network(client.name.rpartition(":")[0].strip("[]"))


def role_of(principal: Hashable) -> Hashable:
    """Return the principal without its credentials: a role with renewed credentials keeps its key."""
    if isinstance(principal, Principal) and principal.original is not None:
        return Principal(principal.role)
    return principal


class DisplayNames:
    """Names of keys and principals for operators; roles are anonymized by `authenticationRoleLoggingAnonymizer`."""

    def __init__(self, anonymize: Callable[[str], str] = str) -> None:
        self._anonymize = anonymize

    def __call__(self, key: object) -> str:
        """Return the name of a namespace, a client, or a principal."""
        return self._anonymize(key.role) if isinstance(key, Principal) else str(key)


def namespace_of(topic: str) -> str | None:
    """Return `tenant/namespace` of a full topic name, None for any other text."""
    _, scheme, rest = topic.partition("://")
    parts = rest.split("/", 2)
    return f"{parts[0]}/{parts[1]}" if scheme and len(parts) == 3 else None
