"""The pod of `helm test`: what it runs succeeds against a gateway, and fails where no client could connect."""

import asyncio
from typing import Any

import pytest

from proxy.cli.main import main
from tests.helm.charts import gateway
from tests.support.clients.async_client import LOOPBACK
from tests.support.proxies.proxy_under_test import staged
from tests.support.sockets.ports import free_port

SERVICE = "pulsar-proxy.pulsar"


def pod(**values: Any) -> dict[str, Any]:
    (found,) = gateway(values).of_kind("Pod")
    return found


def run(monkeypatch: pytest.MonkeyPatch, port: int, web_port: int) -> int:
    """Run the command of the pod with its environment, against these ports in the place of the Service's."""
    (container,) = pod()["spec"]["containers"]
    assert container["command"] == ["pulsar-proxy"]
    for variable in container["env"]:
        value = variable["value"].replace(f"{SERVICE}:6650", f"{LOOPBACK}:{port}")
        monkeypatch.setenv(variable["name"], value.replace(f"{SERVICE}:80", f"{LOOPBACK}:{web_port}"))
    return main(container["args"])


async def test_the_pod_succeeds_at_a_gateway_that_serves(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async with staged(None) as stage:
        code = await asyncio.to_thread(run, monkeypatch, stage.proxy.port, stage.proxy.web_port)
    told = capsys.readouterr().out
    assert code == 0, told
    assert f"brokerServiceURL: pulsar://{LOOPBACK}:{stage.proxy.port}: credentials" in told
    assert f"brokerWebServiceURL: http://{LOOPBACK}:{stage.proxy.web_port}: port" in told


async def test_the_pod_fails_where_nobody_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    assert await asyncio.to_thread(run, monkeypatch, free_port(), free_port()) == 1


def test_the_pod_is_a_hook_that_no_service_finds() -> None:
    render = gateway({})
    found = pod()
    assert found["metadata"]["annotations"]["helm.sh/hook"] == "test"
    assert found["spec"]["restartPolicy"] == "Never"
    selector = render.one("Service")["spec"]["selector"]
    assert not selector.items() <= found["metadata"]["labels"].items()
    assert gateway({"test": {"enabled": False}}).of_kind("Pod") == []


def test_the_pod_shows_the_proxy_s_token_and_trusts_the_authority_that_is_named() -> None:
    token = {"enabled": True, "proxySecretName": "t", "keySecretName": "k"}
    tls = {"enabled": True, "secretName": "s"}
    found = pod(auth={"token": token}, tls=tls, test={"caSecretName": "ca"}, replicaCount=1)["spec"]
    (container,) = found["containers"]
    env = {each["name"]: each["value"] for each in container["env"]}
    assert env == {
        "tlsEnabledWithBroker": "true",
        "brokerServiceURLTLS": f"pulsar+ssl://{SERVICE}:6651",
        "brokerWebServiceURLTLS": f"https://{SERVICE}:443",
        "brokerClientTrustCertsFilePath": "/pulsar/certs/ca/ca.crt",
        "brokerClientAuthenticationPlugin": "token",
        "brokerClientAuthenticationParameters": "file:///pulsar/tokens/proxy/token",
    }
    mounted = {each["mountPath"] for each in container["volumeMounts"]}
    assert {each["secret"]["secretName"] for each in found["volumes"]} == {"t", "ca"}
    assert mounted == {"/pulsar/tokens", "/pulsar/certs/ca"}
