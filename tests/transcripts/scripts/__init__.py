"""The scripts by group; each group has its file in recorded/."""

from typing import Final

from tests.transcripts.script import Script
from tests.transcripts.scripts.connect import CONNECT
from tests.transcripts.scripts.direct import DIRECT
from tests.transcripts.scripts.requests import REQUESTS
from tests.transcripts.scripts.token import TOKEN
from tests.transcripts.scripts.unsupported import UNSUPPORTED

GROUPS: Final[dict[str, tuple[Script, ...]]] = {
    "connect": CONNECT,
    "direct": DIRECT,
    "requests": REQUESTS,
    "unsupported": UNSUPPORTED,
    "token": TOKEN,
}
SCRIPTS: Final = {script.name: script for group in GROUPS.values() for script in group}
assert len(SCRIPTS) == sum(map(len, GROUPS.values())), "two scripts have one name"
