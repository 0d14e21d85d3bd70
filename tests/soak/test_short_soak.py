"""A soak of seconds, as everybody can run it for hours: its verdict is about counts, for a slope needs an hour."""

import asyncio
import json
import sys
from pathlib import Path

import pytest

from tests.soak.driver import names

ROOT = Path(__file__).parents[2]


@pytest.mark.timeout(400)
async def test_after_mixed_load_with_churn_nothing_is_left(tmp_path: Path) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.soak", "--minutes=0.07", "--moments=2", "--pace=20", f"--out={tmp_path}",
        cwd=ROOT, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    try:
        output, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.terminate()
    found = json.loads((tmp_path / "soak.json").read_text())
    assert (process.returncode, found["broken"]) == (0, []), output.decode()
    assert all(found["actions"].get(name) for name in names())
    assert len(found["quiet"]) == 2
