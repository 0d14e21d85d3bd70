"""Make what leads to brokers, whose questions over HTTP need a module of the web side."""

from collections.abc import Callable
from functools import partial
from typing import Any

from proxy.app.identities import Identities
from proxy.brokers.side import BrokerSide
from proxy.brokers.sockets import Sockets
from proxy.config.core import Core


def make_broker_side(core: Core, sockets: Sockets, identities: Identities) -> BrokerSide:
    """Return what leads to brokers, with the proxy's own credentials."""

    def load_connector() -> Callable[[Any], Any]:
        # Called in a thread: the import takes 100 ms.
        from proxy.web.forward.broker_client import connector_of_one

        return partial(connector_of_one, core.loop_budget)

    return BrokerSide(core, sockets, identities.own, identities.connect_frames, load_connector)
