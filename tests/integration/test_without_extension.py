"""A proxy that does not find the native extension does the same without, and says so."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.test_leaving import embedded, relayed
from tests.support.programs import ran
from tests.support.proxies.running_proxy import child_proxy
from tests.support.relay_engines import IN_THE_WAY
from tests.support.walkthrough import ROOT

MISSING = "pulsar-proxy-native is not installed"


@pytest.fixture(autouse=True)
def no_extension(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have no child of the test find the extension, and each take the engine that this leaves."""
    monkeypatch.setenv("PYTHONPATH", str(IN_THE_WAY))
    monkeypatch.delenv("PULSAR_PREFIX_relayEngine", raising=False)


def proxy(*arguments: str) -> "subprocess.CompletedProcess[str]":
    """Run a command of the proxy to its end."""
    return ran([sys.executable, "-m", "proxy", *arguments], cwd=ROOT)  # fmt: skip


async def test_a_proxy_relays_and_lists_without_the_extension_and_says_so(tmp_path: Path) -> None:
    async with embedded() as broker, child_proxy(tmp_path, broker, brokerProxyAllowedTargetPorts="*") as started:
        (line,) = started.lines("listening for clients")
        assert (line["relay_engine"], line["relay_threads"]) == ("asyncio", 0)
        assert line["relay_engine_reason"] == MISSING
        topics = (await (await started.connected()).topics("demo/ns-0")).topics
        assert len(topics) == 100
        assert (await (await relayed(started, broker)).topics("demo/ns-0")).topics == topics
        page = (await started.get("/metrics")).decode()
        (built,) = [line for line in page.splitlines() if line.startswith("pulsar_proxy_build_info{")]
        assert 'relay_engine="asyncio"' in built
        assert 'native=""' in built


def test_the_version_says_that_there_is_no_extension() -> None:
    done = proxy("--version")
    assert done.returncode == 0
    assert f"native extension: none ({MISSING})" in done.stdout


def test_the_native_engine_cannot_be_asked_for(tmp_path: Path) -> None:
    config = tmp_path / "proxy.conf"
    config.write_text("relayEngine=native\nbrokerServiceURL=pulsar://127.0.0.1:1\nclusterName=test\n")
    done = proxy("serve", "--config", str(config))
    assert done.returncode != 0
    assert "relayEngine: got native, expected auto or asyncio" in done.stdout + done.stderr
    assert MISSING in done.stdout + done.stderr
