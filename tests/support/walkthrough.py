"""Own the commands of the walkthroughs in docs/: their sections, their blocks, and a bash that runs them as they stand.

Rule: nothing in a block is replaced; what is a test's own comes in by the variables that the page introduces. A block
must succeed in each of its commands, and then say what the page says it shows.
"""

import asyncio
import os
import re
import signal
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.support.patience import in_time
from tests.support.tools import tools

ROOT: Final = Path(__file__).resolve().parents[2]
PAGE: Final = ROOT / "docs/operations.md"
PAGES: Final = (PAGE, ROOT / "docs/troubleshooting.md")
BEFORE: Final = "Before you begin"
BLOCK_SECONDS: Final = 90.0

_FENCE: Final = re.compile(r"^```([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_END: Final = "the block has ended with"
# `set -E`: functions too; what stands in a condition is no failure.
_PROLOGUE: Final = f"""set -E
trap 'failed="$failed $BASH_COMMAND;"' ERR
_end() {{ printf '\\n%s[%s]\\n' '{_END} ' "$failed"; failed=; }}
"""


@dataclass(frozen=True)
class Block:
    """Commands that stand together, and what they show; `tags` stand behind `run`."""

    commands: str
    tags: tuple[str, ...] = ()
    shows: str = ""


def sections(page: str) -> dict[str, list[Block]]:
    """Give the blocks that are run, by the heading of their section."""
    found: dict[str, list[Block]] = {}
    for part in re.split(r"(?m)^## ", page)[1:]:
        title, _, text = part.partition("\n")
        blocks = list(_blocks(text))
        if blocks:
            found[title] = blocks
    return found


def all_sections() -> dict[str, list[Block]]:
    """Return the blocks that are run, of all pages with walkthroughs, by the heading of their section."""
    texts = [page.read_text(encoding="utf-8") for page in PAGES]
    return {title: blocks for text in texts for title, blocks in sections(text).items()}


def _blocks(text: str) -> Iterator[Block]:
    last: Block | None = None
    for words, body in _FENCE.findall(text):
        if words == "text shows":
            assert last is not None, f"what does show {body!r}?"
            last = Block(last.commands, last.tags, body)
            continue
        if last is not None:
            yield last
        last = Block(body, tuple(words.split()[2:])) if words.startswith("sh run") else None
    if last is not None:
        yield last


def not_run(page: str) -> list[str]:
    """Return the commands that need what a test has not: each line after a prompt, with the lines that continue it."""
    consoles = [body.replace("\\\n", "") for words, body in _FENCE.findall(page) if words == "console"]
    return [line[2:] for body in consoles for line in body.splitlines() if line[:2] in {"$ ", "# "}]


def missing_of(shows: str, output: str) -> list[str]:
    """Give the lines of `shows` that the output has not, in order; `...` stands for anything in a line."""
    lines, missing = iter(output.splitlines()), []
    for wanted in shows.splitlines():
        pattern = re.compile(".*".join(map(re.escape, wanted.split("..."))))
        if not any(pattern.fullmatch(line.rstrip()) for line in lines):
            missing.append(wanted)
    return missing


class Walk:
    """A bash in which the blocks of one section are run, one after the other."""

    def __init__(self, process: asyncio.subprocess.Process, section: str, directory: Path) -> None:
        self._process = process
        self._directory = directory
        self._left = list(all_sections()[section])

    async def setting_out(self, *tags: str) -> None:
        """Run what the page asks for before anything else; with `tags` also blocks that only such a reader needs."""
        for block in all_sections()[BEFORE]:
            if set(block.tags) <= set(tags):
                await self._run(block)

    async def step(self) -> str:
        """Run the next block and give what it printed; fails if a command does, or shows something else."""
        return await self._run(self._left.pop(0))

    async def rest(self) -> str:
        """Run all blocks that are left."""
        return "".join([await self.step() for _ in list(self._left)])

    def skip(self, tag: str) -> None:
        """Leave out the next block, which must have that tag: it downloads."""
        assert self._left.pop(0).tags == (tag,)

    @property
    def at_its_end(self) -> bool:
        return not self._left

    async def value(self, name: str) -> str:
        """Give the value of a variable."""
        return (await self._run(Block(f'echo "${name}"\n'))).strip()

    async def _run(self, block: Block) -> str:
        script = self._directory / "block.sh"
        script.write_text(block.commands, encoding="utf-8")
        assert self._process.stdin is not None
        self._process.stdin.write(f". '{script}' </dev/null\n_end\n".encode())
        async with in_time(BLOCK_SECONDS):
            output, failed = await self._until_its_end()
        said = f"{block.commands}--- it printed:\n{output}"
        assert not failed, f"failed: {failed}\n{said}"
        missing = missing_of(block.shows, output)
        assert not missing, f"not shown: {missing}\n{said}"
        return output

    async def _until_its_end(self) -> tuple[str, str]:
        assert self._process.stdout is not None
        lines: list[str] = []
        while line := (await self._process.stdout.readline()).decode():
            if line.startswith(_END):
                return "".join(lines), line[len(_END) :].strip(" []\n")
            lines.append(line)
        raise AssertionError(f"bash ended with a block: {''.join(lines)}")


@asynccontextmanager
async def walking(section: str, directory: Path, environment: Mapping[str, object]) -> AsyncIterator[Walk]:
    """Run bash with `environment` alone until the block ends; what it has started ends with it."""
    tools("bash", "curl", "jq", "openssl")
    process = await asyncio.create_subprocess_exec(
        "bash", "--noprofile", "--norc", cwd=ROOT, env={name: str(value) for name, value in environment.items()},
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
        start_new_session=True, limit=1 << 20,
    )  # fmt: skip
    assert process.stdin is not None
    process.stdin.write(_PROLOGUE.encode())
    try:
        yield Walk(process, section, directory)
    finally:
        with suppress(ProcessLookupError):
            # Proxies in the background are of the same group: this bash has no job control.
            os.killpg(process.pid, signal.SIGKILL)
        async with in_time(BLOCK_SECONDS):
            await process.communicate()
