"""All keys of proxy.conf as a class, the base of `Config`.

Rule: declare a new key in its file in `proxy/config/keys/` and nowhere else: proxy.conf and the reference are
generated from these declarations.
"""

from collections.abc import Iterator
from typing import Any

from proxy.config.keys.authentication import AuthenticationKeys
from proxy.config.keys.brokers import BrokerKeys, BrokerRequestKeys, TargetKeys
from proxy.config.keys.clients import ClientKeys
from proxy.config.keys.events import EventKeys
from proxy.config.keys.http import HttpKeys
from proxy.config.keys.key import Key
from proxy.config.keys.operation import OperationKeys
from proxy.config.keys.overload import OverloadKeys
from proxy.config.keys.server import ServerKeys
from proxy.config.keys.sockets import SocketKeys
from proxy.config.keys.tls import TlsKeys
from proxy.config.keys.topic_lists import TopicListKeys


class ConfigKeys(
    ServerKeys,
    BrokerKeys,
    TargetKeys,
    BrokerRequestKeys,
    ClientKeys,
    TlsKeys,
    AuthenticationKeys,
    TopicListKeys,
    HttpKeys,
    SocketKeys,
    OverloadKeys,
    OperationKeys,
    EventKeys,
):
    """The keys as attributes, in the order of proxy.conf."""

    @classmethod
    def keys(cls) -> Iterator[Key[Any]]:
        """Yield every key in the order of the bases."""
        for owner in cls.__mro__:
            yield from (value for value in vars(owner).values() if isinstance(value, Key))
