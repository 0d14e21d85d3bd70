"""A soak of seconds, as everybody can run it for hours: its verdict is about counts, for a slope needs an hour."""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.soak.driver import names

ROOT = Path(__file__).parents[2]


async def soak(out: Path, engine: str) -> tuple[int, str, dict[str, Any]]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.soak", "--minutes=0.07", "--moments=2", "--pace=20",
        f"--engine={engine}", f"--out={out}",
        cwd=ROOT, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    try:
        output, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.terminate()
    assert process.returncode is not None
    return process.returncode, output.decode(), json.loads((out / f"soak-{engine}.json").read_text())


@pytest.mark.timeout(400)
@pytest.mark.parametrize("engine", ["auto", "asyncio"])
async def test_after_mixed_load_with_churn_nothing_is_left(tmp_path: Path, engine: str) -> None:
    code, output, found = await soak(tmp_path, engine)
    assert (code, found["broken"]) == (0, []), output
    assert all(found["actions"].get(name) for name in names())
    assert len(found["quiet"]) == 2
