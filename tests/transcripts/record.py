"""Record the Java proxy's transcripts: `python -m tests.transcripts.record [GROUP...]` writes recorded/ anew.

Run by hand, once per release of the peer: it needs Java and Maven, and starts the proxy once per setting. Look at the
difference in git before it is committed: it is what has changed in the Java proxy.
"""

import argparse
import asyncio
import tempfile
from pathlib import Path
from typing import Final

from tests.transcripts.java_proxy import VERSIONS, java_proxy
from tests.transcripts.model import Transcript, write_recorded
from tests.transcripts.player import bench
from tests.transcripts.script import BROKER, SETTINGS, Script, placed_text
from tests.transcripts.scripts import GROUPS

SILENCE_SECONDS: Final = 4.0


async def _record(settings: str, scripts: list[Script], directory: Path) -> dict[str, Transcript]:
    async with bench(VERSIONS, SILENCE_SECONDS) as brokers:
        keys = {
            "brokerServiceURL": f"pulsar://{BROKER}",
            "brokerWebServiceURL": "http://127.0.0.1:1",
            "brokerProxyAllowedTargetPorts": "*",
            "keepAliveIntervalSeconds": "3600",
            **SETTINGS[settings],
        }
        placed = {key: placed_text(value, brokers.places) for key, value in keys.items()}
        with java_proxy(directory, placed) as port:
            return {script.name: await brokers.play(script, port) for script in scripts}


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.transcripts.record", description=__doc__)
    parser.add_argument("groups", nargs="*", metavar="GROUP", help=f"of {', '.join(GROUPS)} (default: all)")
    groups = parser.parse_args().groups or list(GROUPS)
    recorded: dict[str, Transcript] = {}
    for settings in SETTINGS:
        scripts = [script for group in groups for script in GROUPS[group] if script.settings == settings]
        if scripts:
            print(f"{settings}: {len(scripts)} scripts", flush=True)
            with tempfile.TemporaryDirectory(prefix="transcripts-") as directory:
                recorded |= asyncio.run(_record(settings, scripts, Path(directory)))
    for group in groups:
        write_recorded(group, {script.name: recorded[script.name] for script in GROUPS[group]})


if __name__ == "__main__":
    main()
