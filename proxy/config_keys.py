"""Every key of proxy.conf as one class: what `Config` has values for.

Rule: a new key goes into its file in `proxy/keys/` and nowhere else: proxy.conf and the reference are written from
these tables.
"""

from collections.abc import Iterator
from typing import Any

from proxy.config_key import Key
from proxy.keys.authentication import AuthenticationKeys
from proxy.keys.brokers import BrokerKeys
from proxy.keys.clients import ClientKeys
from proxy.keys.events import EventKeys
from proxy.keys.http import HttpKeys
from proxy.keys.operation import OperationKeys
from proxy.keys.server import ServerKeys
from proxy.keys.sockets import SocketKeys
from proxy.keys.tls import TlsKeys
from proxy.keys.topic_lists import TopicListKeys


class ConfigKeys(
    ServerKeys,
    BrokerKeys,
    ClientKeys,
    TlsKeys,
    AuthenticationKeys,
    TopicListKeys,
    HttpKeys,
    SocketKeys,
    OperationKeys,
    EventKeys,
):
    """The keys as attributes, in the order in which operators read them."""

    @classmethod
    def keys(cls) -> Iterator[Key[Any]]:
        """Yield every key in the order of the bases."""
        for owner in cls.__mro__:
            yield from (value for value in vars(owner).values() if isinstance(value, Key))
