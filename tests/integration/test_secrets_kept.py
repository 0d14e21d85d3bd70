"""A proxy that was given secrets in every key that takes one: none of them leaves it by any door."""

import os
import resource
import signal
from pathlib import Path

import pytest

from proxy.cli.main import main
from proxy.config.config import Config
from tests.support.brokers.embedded.broker import EmbeddedBroker
from tests.support.brokers.embedded.topics import GeneratedTopics
from tests.support.clients.async_client import eventually
from tests.support.proxies.running_proxy import Running, child_proxy

SECRET = "hush-8c41"
SECRET_KEYS = {
    "tokenSecretKey": f"data:;base64,{SECRET}",
    "tokenPublicKey": f"data:;base64,{SECRET}",
    "basicAuthConf": f"data:;base64,{SECRET}",
    "brokerClientAuthenticationParameters": f"token:{SECRET}",
    "proxyHttpResponseHeadersJson": f'{{"X-Api-Key": "{SECRET}"}}',
    "tlsKeyStorePassword": SECRET,
    "tlsTrustStorePassword": SECRET,
    "brokerClientTlsKeyStorePassword": SECRET,
    "brokerClientTlsTrustStorePassword": SECRET,
    "eventLogSalt": SECRET * 2,
    "eventLogTopicAuthenticationParameters": f"token:{SECRET}",
}


def test_every_key_that_is_declared_secret_is_tried_here() -> None:
    assert {key.name for key in Config.keys() if key.secret} <= set(SECRET_KEYS)  # noqa: SIM118


async def pages(proxy: Running) -> bytes:
    paths = ("/config", "/metrics", "/status.html", "/readyz", "/proxy-stats/connections", "/proxy-stats/logging",
             "/ui/config", "/ui/state")  # fmt: skip
    answers = [await proxy.get(path) for path in paths]
    assert all(answer.startswith(b"HTTP/1.1 200 ") for answer in answers)
    # The header that the operator has added to each response is for all to see.
    return b"".join(answer.partition(b"\r\n\r\n")[2] for answer in answers)


def said(capsys: pytest.CaptureFixture[str], proxy: Running, *arguments: str) -> str:
    socket = ["--socket", str(proxy.config.parent / "control.sock")]
    assert main([*arguments, *socket]) == 0
    return capsys.readouterr().out


@pytest.mark.threat("shown-secrets")
async def test_no_secret_is_in_the_log_on_a_page_or_in_an_answer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with (
        EmbeddedBroker(GeneratedTopics(1, 100, 100)) as broker,
        child_proxy(tmp_path, broker, **SECRET_KEYS, logLevel="debug", shutdownDrainMillis=100) as proxy,
    ):
        client = await proxy.connected()
        await client.topics("demo/ns-0")
        os.kill(proxy.child.pid, signal.SIGHUP)
        await eventually(lambda: proxy.said("configuration reloaded"), "a reload")
        # Other secrets, which wait for a restart; and then faults.
        text = proxy.config.read_text()
        proxy.config.write_text(text.replace(SECRET, f"{SECRET}-new"))
        os.kill(proxy.child.pid, signal.SIGHUP)
        await eventually(lambda: proxy.said("configuration reloaded") == 2, "another reload")
        shown = (await pages(proxy)).decode()
        for arguments in (("top", "--once"), ("top", "--once", "--json"), ("config",), ("config", "--json")):
            shown += said(capsys, proxy, *arguments)
        proxy.config.write_text(
            text + f"tlsEnabledWithKeyStore=token:{SECRET}\nservicePort=data:{SECRET}\n"
            f"brokerWebServiceURL=http://me:{SECRET}@b\nbrokerProxyAllowedTargetPorts=6650,http://{SECRET}@b\n"
        )
        os.kill(proxy.child.pid, signal.SIGHUP)
        await eventually(lambda: proxy.said("configuration fault") == 4, "faults")
        os.kill(proxy.child.pid, signal.SIGTERM)
        assert await proxy.exit_code() == 0
        assert "(hidden)" in shown
        assert SECRET not in shown
        assert SECRET not in proxy.log.read_text()


async def test_a_token_that_is_not_there_yet_is_told_at_the_start_by_its_key(tmp_path: Path) -> None:
    keys = {
        "brokerClientAuthenticationPlugin": "token",
        "brokerClientAuthenticationParameters": f"file://{tmp_path}/token",
    }
    async with EmbeddedBroker(GeneratedTopics(1, 100, 100)) as broker, child_proxy(tmp_path, broker, **keys) as proxy:
        (line,) = proxy.lines("brokers will refuse this proxy: it has no credentials")
        assert line["level"] == "warning"
        assert line["key"] == "brokerClientAuthenticationParameters"
        assert line["detail"] == f"{tmp_path}/token: no such file or directory"


async def test_the_check_of_a_configuration_tells_no_secret(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "proxy.conf"
    lines = "".join(f"{key}={value}\n" for key, value in SECRET_KEYS.items())
    path.write_text(f"brokerServiceURL=pulsar://b\n{lines}")
    assert main(["check-config", "--config", str(path)]) == 0
    assert main(["print-config", "--config", str(path)]) == 0
    path.write_text(f"brokerServiceURL=http://me:{SECRET}@b\n{lines}tokenSecretKey={SECRET}\\u0001\n")
    assert main(["check-config", "--config", str(path)]) == 2
    said = capsys.readouterr()
    assert SECRET not in said.out + said.err


@pytest.mark.threat("secret-files-open")
@pytest.mark.parametrize(("mode", "told"), [(0o644, 1), (0o600, 0)])
async def test_the_file_of_a_secret_that_others_can_read_is_told_of_by_its_key(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], mode: int, told: int
) -> None:
    token = tmp_path / "token"
    token.write_text(SECRET * 4)
    token.chmod(mode)
    keys = {"adminApiAddress": "127.0.0.1:0", "adminApiTokenFilePath": str(token)}
    async with EmbeddedBroker(GeneratedTopics(1, 100, 100)) as broker, child_proxy(tmp_path, broker, **keys) as proxy:
        lines = proxy.lines("the file of a secret is open to others")
        assert [(line["level"], line["key"]) for line in lines] == [("warning", "adminApiTokenFilePath")] * told
        assert SECRET not in proxy.log.read_text()
    path = tmp_path / "checked.conf"
    path.write_text("brokerServiceURL=pulsar://b\n" + "".join(f"{key}={value}\n" for key, value in keys.items()))
    assert main(["check-config", "--config", str(path)]) == 0
    assert capsys.readouterr().err.count("warning: adminApiTokenFilePath: ") == told


@pytest.mark.threat("core-dumps")
@pytest.mark.parametrize(("keys", "dumps"), [({}, False), ({"coreDumpEnabled": "true"}, True)])
async def test_a_crash_leaves_no_dump_of_the_memory_unless_a_key_asks_for_that(
    tmp_path: Path, keys: dict[str, str], dumps: bool
) -> None:
    async with EmbeddedBroker(GeneratedTopics(1, 100, 100)) as broker, child_proxy(tmp_path, broker, **keys) as proxy:
        soft, hard = resource.prlimit(proxy.child.pid, resource.RLIMIT_CORE)
        own = resource.getrlimit(resource.RLIMIT_CORE)
        # The kernel writes no file of one byte, and starts no program of core_pattern for this limit.
        assert soft == (own[0] if dumps else min(1, own[1]) if own[1] != resource.RLIM_INFINITY else 1)
        assert hard == own[1]


async def test_the_log_level_changes_over_the_control_socket_and_returns(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with EmbeddedBroker(GeneratedTopics(1, 100, 100)) as broker, child_proxy(tmp_path, broker) as proxy:
        assert said(capsys, proxy, "log-level", "warning") == "warning\n"
        assert said(capsys, proxy, "log-level", "debug", "--for", "0.5").startswith("debug for ")
        await eventually(lambda: proxy.said("log level returned"), "the return")
        assert said(capsys, proxy, "log-level") == "warning\n"
