"""Ask a proxy for a target that it must refuse."""

from protocol.errors import ServerError
from proxy.core.public_causes import TARGET_TEXT
from tests.support.auth.credentials import turned_away
from tests.support.clients.async_client import connect_frame
from tests.support.proxies.proxy_under_test import Stage


async def refused_target(stage: Stage, target: str) -> str:
    """Ask for `target`, and give what the log says of the refusal.

    The client is told the same whatever the cause: else it could scan ports and names by the answers.
    """
    error = await turned_away(stage, connect_frame(target))
    assert (error.error, error.message) == (ServerError.ServiceNotReady, TARGET_TEXT)
    return stage.details[-1]
