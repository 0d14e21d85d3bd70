"""A proxy whose keys, certificates and authorities are in stores of PKCS#12."""

import os
import ssl
from pathlib import Path

import pytest

from protocol.pb import PulsarApi_pb2 as pb
from tests.support.auth.tls import authority, certificate, client_context, server_context, tls_client
from tests.support.auth.tls_settings import broker_store_keys, store_keys, write_store
from tests.support.proxies.counted import counted
from tests.support.proxies.proxy_under_test import TOPIC, TOPICS, namespace, staged


async def test_stores_serve_clients_and_brokers_and_a_changed_one_is_in_force(tmp_path: Path) -> None:
    own = write_store(tmp_path / "own.p12", certificate())
    trust = write_store(tmp_path / "trust.p12", trusted=(authority(),))
    towards = write_store(tmp_path / "towards.p12", authority().issue_cert("proxy.example"))
    keys = store_keys(own, trust) | broker_store_keys(trust, towards) | {"tlsRequireTrustedClientCertOnConnect": "true"}
    somebody = authority().issue_cert("somebody")
    async with staged(broker_tls=server_context(clients_from="first"), **keys) as stage:
        before = await tls_client(stage, client_context(own=somebody))
        await before.connect()
        assert (await before.lookup(TOPIC)).response == pb.CommandLookupTopicResponse.Connect
        assert len((await before.topics(namespace(0))).topics) == TOPICS
        os.replace(write_store(tmp_path / "new.p12", certificate("second")), own)
        stage.proxy.files_may_have_changed()
        await stage.until(lambda: counted(stage.proxy.counters, "tls_reloads", "applied") == 1, "the new store")
        os.truncate(own, 700)
        stage.proxy.files_may_have_changed()
        await stage.until(lambda: counted(stage.proxy.counters, "tls_reloads", "refused") == 1, "a refusal")
        await (await tls_client(stage, client_context("second", somebody))).connect()
        with pytest.raises(ssl.SSLCertVerificationError):
            await tls_client(stage, client_context(own=somebody))
        await before.ping()
