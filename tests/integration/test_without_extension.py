"""A proxy without the native extension: only where its operator asks for one, with lists, lookups and plain relays."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from proxy.app.memory.budget import worst_case_parts
from proxy.config.config import Config, ConfigError
from proxy.core.version import VERSION
from tests.integration.test_leaving import embedded, relayed
from tests.support.patience import patient
from tests.support.programs import ran
from tests.support.proxies.running_proxy import child_proxy
from tests.support.walkthrough import ROOT

MISSING = "pulsar-proxy-native is not installed"
INSTALL = f"pip install pulsar-proxy-native=={VERSION}"
LEFT_OUT = (
    "relayMemoryPoolMB=-1, relaySocketMemoryMB=-1, watchTopicListLimitEnabled=false, relayBufferBytes=65536, "
    "relayUnsentBytes=32768"
)
BROKER = {"brokerServiceURL": "pulsar://broker.invalid", "brokerServiceURLTLS": "pulsar+ssl://broker.invalid"}
NEED_IT = {
    "servicePortTls": "6651",
    "webServicePortTls": "8443",
    "tlsEnabledWithBroker": "true",
    "relayMemoryPoolMB": "128",
    "relaySocketMemoryMB": "512",
    "watchTopicListLimitEnabled": "true",
    "overloadThrottleEnabled": "true",
    "adaptivePublisherThrottlingEnabled": "true",
    "proxyLogLevel": "1",
}


@pytest.fixture(autouse=True)
def no_extension(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Have no child of the test find the extension, and each take the engine that this leaves."""
    in_the_way = tmp_path_factory.mktemp("path")
    module = "raise ModuleNotFoundError(name=__name__)\n"
    (in_the_way / "pulsar_proxy_native.py").write_text(module)
    monkeypatch.setenv("PYTHONPATH", str(in_the_way))


def proxy(*arguments: str) -> "subprocess.CompletedProcess[str]":
    """Run a command of the proxy to its end."""
    return ran([sys.executable, "-m", "proxy", *arguments], cwd=ROOT)


@pytest.mark.parametrize("command", ["serve", "check-config"])
def test_nobody_gets_a_proxy_without_the_extension_unasked(command: str) -> None:
    done = proxy(command, "--set", "brokerServiceURL=pulsar://broker.invalid")
    assert done.returncode == 2
    assert (
        f"error: command line: --without-extension: got nothing, expected this option, because {MISSING}; "
        f"or install it: {INSTALL}\n"
    ) in done.stderr


async def test_who_asks_for_it_gets_lists_and_relays_and_is_told_what_is_left_out(tmp_path: Path) -> None:
    keys = {"brokerProxyAllowedTargetPorts": "*"}
    async with embedded() as broker, child_proxy(tmp_path, broker, options=["--without-extension"], **keys) as started:
        (line,) = started.lines("listening for clients")
        assert (line["relay_threads"], line["relay_threads_reason"]) == (0, "--without-extension")
        (warning,) = started.lines("configuration")
        assert warning["detail"] == f"--without-extension: {LEFT_OUT}: the native extension does more: {INSTALL}"
        topics = (await (await started.connected()).topics("demo/ns-0")).topics
        assert len(topics) == 100
        assert (await (await relayed(started, broker)).topics("demo/ns-0")).topics == topics
        page = (await started.get("/metrics")).decode()
        (built,) = [line for line in page.splitlines() if line.startswith("pulsar_proxy_build_info{")]
        assert {'native=""', 'rustls=""', 'aws_lc_sys=""'} <= set(re.split("[{,}]", built))


@pytest.mark.parametrize("key", NEED_IT)
def test_a_key_that_asks_for_more_is_refused_by_name(key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Config.load(overrides=BROKER | {key: NEED_IT[key]}, without_extension=True)
    (problem,) = caught.value.problems
    assert (problem.key, problem.got) == (key, NEED_IT[key])
    assert problem.expected.endswith(f" with --without-extension, or the native extension: {INSTALL}")


def test_a_key_that_asks_for_nothing_may_be_set() -> None:
    off = {"relayMemoryPoolMB": "0", "relaySocketMemoryMB": "-1", "servicePortTls": "", "proxyLogLevel": "0"}
    assert Config.load(overrides=BROKER | off, without_extension=True).relay_pool_bytes == 0


def test_the_budget_is_what_small_relays_may_hold_and_what_is_set_for_them_counts() -> None:
    def sum_of(**keys: str) -> int:
        parts = worst_case_parts(Config.load(overrides=BROKER | keys, without_extension=True))
        return parts["relays, both directions stalled"]

    a_relay = 2 * 65536 + 3 * 32768
    assert sum_of() == 10_000 * a_relay
    assert sum_of(maxConcurrentInboundConnections="100") == 100 * a_relay
    assert sum_of(relayBufferBytes="131072") == 10_000 * (a_relay + 2 * 65536)


def test_no_live_change_brings_back_what_is_left_out() -> None:
    config = Config.load(overrides=BROKER, without_extension=True)
    for value in ("true", ""):
        with pytest.raises(ConfigError, match="watchTopicListLimitEnabled: got true, expected false with"):
            config.replace({"watchTopicListLimitEnabled": value})


def test_the_demo_does_without_by_itself() -> None:
    sizes = ("--connections", "20", "--topics", "1000", "--late-seconds", "0.1")
    done = ran([sys.executable, "-m", "proxy", "demo", *sizes], cwd=ROOT, timeout=patient(120))
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{MISSING}: the proxy runs --without-extension\n" in done.stderr
