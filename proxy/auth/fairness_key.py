"""Decide who is charged for memory: the key under which the limiter books it and shares it (`topicListFairness`)."""

from collections.abc import Callable, Hashable
from typing import Final, Protocol

from proxy.auth.identity import Principal

# A key may outlive its request as a debtor; clients choose how long a namespace's name is.
LONGEST_KEY: Final = 256


class ChargedClient(Protocol):
    """Who can be charged: a client of either port."""

    @property
    def principal(self) -> Hashable:
        """Give the authenticated client; None if nobody is authenticated."""

    @property
    def name(self) -> str:
        """Name the connection."""


class FairnessKeys:
    """Name the key of a client's request; `fairness` may change at any time, what is booked keeps its key."""

    def __init__(self, fairness: str) -> None:
        self.fairness = fairness

    def key(self, client: ChargedClient, namespace: str | None) -> Hashable:
        """Give the key for a request about `namespace`; None if it is about no namespace in particular."""
        if self.fairness == "principal":
            return role_of(client.principal)
        if namespace is None or self.fairness == "connection":
            return client.name
        key = namespace.partition("/")[0] if self.fairness == "tenant" else namespace
        return key[:LONGEST_KEY]


def role_of(principal: Hashable) -> Hashable:
    """Give the principal without what it presented: newer credentials of a role are not somebody else's."""
    if isinstance(principal, Principal) and principal.original is not None:
        return Principal(principal.role)
    return principal


class DisplayNames:
    """Name keys and principals for operators: roles as `authenticationRoleLoggingAnonymizer` has them, never more."""

    def __init__(self, anonymize: Callable[[str], str] = str) -> None:
        self._anonymize = anonymize

    def __call__(self, key: object) -> str:
        """Give the name of a namespace, a client, or a principal."""
        return self._anonymize(key.role) if isinstance(key, Principal) else str(key)


def namespace_of(topic: str) -> str | None:
    """Give `tenant/namespace` of a topic's full name, None for any other."""
    _, scheme, rest = topic.partition("://")
    parts = rest.split("/", 2)
    return f"{parts[0]}/{parts[1]}" if scheme and len(parts) == 3 else None
