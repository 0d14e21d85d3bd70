import re
from fnmatch import filter as matching
from pathlib import Path

import proxy
from proxy.app.memory.nodes import NODES

# A semaphore with its name, which may have the name of a broker or of its places in it.
MADE = re.compile(r"\b(?:AsyncSemaphore|share|SharedPlaces)\(\s*f?\"([^\"]+)\"")


def test_each_semaphore_of_the_product_is_declared_and_no_name_twice() -> None:
    sources = [path.read_text() for path in Path(proxy.__file__).parent.rglob("*.py")]
    made = {re.sub(r"{.+?}", "*", name) for source in sources for name in MADE.findall(source)}
    declared = [node.name for node in NODES]
    assert {"dials", "lookups", "questions to *", "connections to *:*"} < made
    assert [name for name in made if not matching(declared, name)] == []
    assert len(declared) == len(set(declared))
