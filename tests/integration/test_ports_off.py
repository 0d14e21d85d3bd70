"""Ports that their operator has turned off: nothing listens there, and everything else works without them."""

import asyncio
import re
from pathlib import Path

import pytest
from aiohttp import web

from proxy.cli.admin.client import ask_top
from proxy.cli.demo.children import Child
from tests.integration.test_http_lookups import looked_up
from tests.support.auth.tls import PemFiles
from tests.support.brokers.embedded.broker import EmbeddedBroker
from tests.support.brokers.embedded.topics import GeneratedTopics
from tests.support.proxies.proxy_under_test import staged
from tests.support.web.web_stage import web_staged


def listening_ports(pid: int) -> set[int]:
    """Read which TCP ports of this machine's loopback are listened on by `pid`."""
    inodes = {found for link in Path(f"/proc/{pid}/fd").iterdir() if (found := _inode(link))}
    lines = [line.split() for line in Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]]
    return {int(line[1].rpartition(":")[2], 16) for line in lines if line[3] == "0A" and line[9] in inodes}


def _inode(link: Path) -> str:
    try:
        found = re.match(r"socket:\[(\d+)\]", str(link.readlink()))
    except OSError:
        return ""
    return found.group(1) if found else ""


@pytest.mark.threat("port-turned-off")
async def test_a_proxy_of_one_tls_port_listens_nowhere_else(tmp_path: Path) -> None:
    async with EmbeddedBroker(GeneratedTopics(1, 10, 100)) as broker:
        config = tmp_path / "proxy.conf"
        keys: dict[str, object] = {
            "brokerServiceURL": broker.service_url, "bindAddress": "127.0.0.1", "servicePort": "", "webServicePort": "",
            "controlSocketPath": tmp_path / "control.sock", **PemFiles.write(tmp_path).server_keys,
        }  # fmt: skip
        config.write_text("".join(f"{key}={value}\n" for key, value in keys.items()))
        with Child("proxy", ["serve", "--config", str(config)], tmp_path) as child:
            port = (await child.said("tls_port"))["tls_port"]
            await child.said("budget_bytes")
            assert listening_ports(child.pid) == {port}
            top = await asyncio.to_thread(ask_top, [tmp_path / "control.sock"])
            assert top["proxy"]["address"] == f"127.0.0.1:{port}"
        log = (tmp_path / "proxy.log").read_text()
        assert "listening for http" not in log
        assert "internal" not in log


async def test_a_web_port_with_tls_alone_is_a_web_server(tmp_path: Path) -> None:
    files = PemFiles.write(tmp_path)
    async with staged(servicePort="", webServicePort="", webServicePortTls="0", **files.server_keys) as stage:
        proxy = stage.proxy
        assert proxy.web is not None
        assert (proxy.web.port, proxy.port, proxy.web_port) == (None, 0, 0)
        assert proxy.web.tls_port
        assert proxy.tls_port == proxy.client_port > 0


@pytest.mark.threat("port-turned-off")
async def test_no_plain_port_is_opened_for_a_broker_where_plain_clients_are_not_served(tmp_path: Path) -> None:
    files = PemFiles.write(tmp_path)
    async with web_staged(servicePort="", **files.server_keys) as at:

        async def found(_: web.BaseRequest) -> web.StreamResponse:
            return web.json_response({"brokerUrl": "pulsar://a:6650", "brokerUrlTls": "pulsar+ssl://a:6651"})

        at.broker.answer = found
        answer = await looked_up(at)
        assert answer["brokerUrl"] == "pulsar://a:6650"
        assert answer["brokerUrlTls"].startswith("pulsar+ssl://127.0.0.1:")
