"""Play scripts before our proxy, a fresh one for each, and find where it differs from what is recorded."""

from collections.abc import Iterable

from proxy.app.proxy import Proxy
from proxy.core.log import open_log
from proxy.core.version import VERSION
from tests.support.proxies.proxy_under_test import config_for
from tests.transcripts.compare import Found, differences
from tests.transcripts.model import Transcript, read_recorded
from tests.transcripts.player import bench
from tests.transcripts.script import BROKER, SETTINGS, Script, placed_text
from tests.transcripts.scripts import GROUPS


async def replay(script: Script) -> Transcript:
    """Play one script before a proxy of ours."""
    async with bench((VERSION,)) as brokers:
        keys = {key: placed_text(value, brokers.places) for key, value in SETTINGS[script.settings].items()}
        url = keys.pop("brokerServiceURL", f"pulsar://{brokers.places[BROKER]}")
        proxy = Proxy(config_for(url, **keys), open_log("error", "json"))
        await proxy.start()
        try:
            return await brokers.play(script, proxy.port)
        finally:
            await proxy.stop()


async def found_in(groups: Iterable[str]) -> dict[str, list[Found]]:
    """Find what differs in each script of these groups."""
    found = {}
    for group in groups:
        recorded = read_recorded(group)
        for script in GROUPS[group]:
            found[script.name] = differences(recorded[script.name], await replay(script))
    return found
