"""Connectors for questions over HTTP of tests that are not about the loop's time."""

import asyncio
from collections.abc import Callable
from typing import Any

from proxy.core.loop_budget import LoopBudget
from proxy.web.forward.broker_client import connector_of_one


def load_connector() -> Callable[[Any], Any]:
    """Return what makes a connector; called in a thread, as the proxy does."""

    def connector(tls: Any) -> Any:
        return connector_of_one(LoopBudget(asyncio.get_running_loop(), lambda: 0.0), tls)

    return connector
