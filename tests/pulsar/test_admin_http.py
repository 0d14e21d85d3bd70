"""The admin interface and HTTP lookups of a real broker, used through the proxy by real HTTP and Pulsar clients."""

import asyncio
import hashlib
import io
import json
import random
import re
import uuid
from collections.abc import Callable, Mapping

import aiohttp
import pytest

from tests.pulsar.admin import Admin, AdminError
from tests.pulsar.messages import connect, receive
from tests.pulsar.pages import proxy_metrics, wait_until_whole
from tests.pulsar.proxy_process import Proxy

pytestmark = pytest.mark.pulsar

PACKAGE_BYTES = 20_000_000


@pytest.fixture
def proxy(new_proxy: Callable[[Mapping[str, str]], Proxy]) -> Proxy:
    made = new_proxy({})
    wait_until_whole(made)
    return made


@pytest.fixture
def through(proxy: Proxy) -> Admin:
    """Give the broker's admin interface as a client of the proxy's web port sees it."""
    return Admin(proxy.web_url)


def test_tenants_namespaces_and_topics_are_made_and_listed(through: Admin, admin: Admin) -> None:
    tenant = f"t-{uuid.uuid4().hex[:8]}"
    through.call("PUT", f"/admin/v2/tenants/{tenant}", {"allowedClusters": ["standalone"]})
    through.create_namespace(f"{tenant}/ns")
    through.create_topic(f"persistent://{tenant}/ns/wide", partitions=1000)
    listed = through.topics(f"{tenant}/ns")
    assert len(listed) == 1000
    assert listed == admin.topics(f"{tenant}/ns")
    with pytest.raises(AdminError) as refused:
        through.create_namespace("no-such-tenant/ns")
    assert refused.value.status == 404


def test_packages_are_uploaded_through_the_proxy_and_come_back_the_same(
    through: Admin, admin: Admin, namespace: str
) -> None:
    package = random.Random(PACKAGE_BYTES).randbytes(PACKAGE_BYTES)
    for chunked in (False, True):
        path = f"/admin/v3/packages/function/{namespace}/package-{chunked}/v1"
        asyncio.run(_upload(through.url + path, package, chunked=chunked))
        # From the broker itself first: what it has is what the proxy has passed on.
        for url in (admin.url, through.url):
            assert asyncio.run(_download(url + path)) == hashlib.sha256(package).hexdigest()


async def _upload(url: str, package: bytes, *, chunked: bool) -> None:
    form = aiohttp.FormData()
    form.add_field("metadata", json.dumps({"description": "a test"}), content_type="application/json")
    form.add_field("file", io.BytesIO(package), filename="package.nar")
    # Without the length of the whole it goes out in chunks.
    async with aiohttp.ClientSession() as client, client.post(url, data=form, chunked=chunked or None) as answer:
        assert answer.status == 204, await answer.text()


async def _download(url: str) -> str:
    digest = hashlib.sha256()
    async with aiohttp.ClientSession() as client, client.get(url) as answer:
        assert answer.status == 200, await answer.text()
        async for piece in answer.content.iter_any():
            digest.update(piece)
    return digest.hexdigest()


def test_a_client_with_an_http_url_produces_and_consumes_by_a_pattern_through_the_proxy(
    proxy: Proxy, admin: Admin, namespace: str
) -> None:
    topics = [f"persistent://{namespace}/{name}" for name in ("orders-1", "orders-2", "other")]
    for topic in topics:
        admin.create_topic(topic)
    client = connect(proxy.web_url)
    consumer = client.subscribe(re.compile(f"persistent://{namespace}/orders-.*"), "sub")
    for topic in topics:
        client.create_producer(topic).send(topic.encode())
    assert sorted(message.data().decode() for message in receive(consumer, 2)) == topics[:2]
    at = proxy_metrics(proxy)
    # Every connection to the broker is one of this proxy's relays.
    assert at("active_connections") >= 1
    assert at("lookup_requests_total") == 0
    stats = admin.call("GET", f"/admin/v2/{topics[0].replace('://', '/')}/stats")
    assert stats["publishers"] or stats["subscriptions"]["sub"]["consumers"]
    client.close()
