"""Who clients are: asked before anything is done for them, asked again in time, and never taken at their own word."""

import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from passlib.hash import ldap_sha1

from protocol.command_type import CommandType
from protocol.errors import ServerError
from protocol.pb import PulsarApi_pb2 as pb
from proxy.auth.identity import AuthData, Principal
from proxy.core.public_causes import PublicCause, authentication_text
from tests.support.auth.credentials import (
    NOON,
    Court,
    Judge,
    admitted,
    challenged,
    court,
    presenting,
    refused,
    response,
    turned_away,
)
from tests.support.auth.tls import PemFiles, authority, client_context, tls_client
from tests.support.auth.tokens import SECRET, data_url, signed
from tests.support.brokers.raw_broker import raw_broker, silence
from tests.support.clients.async_client import PING, AsyncClient, connect_frame, schema_frame, topics_frame
from tests.support.patience import in_time, patient
from tests.support.proxies.counted import counted
from tests.support.proxies.proxy_under_test import TOPIC, namespace, staged

LISTS = CommandType.GET_TOPICS_OF_NAMESPACE
FORWARDING: dict[str, Any] = {"forwardAuthorizationCredentials": "true"}
NOT_FORWARDING: dict[str, Any] = {"forwardAuthorizationCredentials": "false"}
SMUGGLED: dict[str, Any] = {
    "original_principal": "admin",
    "original_auth_data": "stolen",
    "original_auth_method": "token",
}
PROXY_ROLE: dict[str, Any] = {
    "brokerClientAuthenticationPlugin": "org.apache.pulsar.client.impl.auth.AuthenticationToken",
    "brokerClientAuthenticationParameters": "token:the proxy itself",
}


def connects(held: Court) -> list[pb.CommandConnect]:
    """Give the CONNECTs that the broker has seen."""
    return [command.connect for command in held.stage.broker.record.commands(CommandType.CONNECT)]


# --- the handshake --------------------------------------------------------------------------------


@pytest.mark.threat("password-to-every-broker")
@pytest.mark.parametrize("relayed", [True, False])
@pytest.mark.parametrize(
    ("keys", "method", "forwarded"),
    [
        ({}, "token", True),
        (NOT_FORWARDING, "token", False),
        (FORWARDING, "token", True),
        # Passwords only for who asks for it; a blank in the file is the default.
        ({}, "basic", False),
        ({"forwardAuthorizationCredentials": ""}, "basic", False),
        (NOT_FORWARDING, "basic", False),
        (FORWARDING, "basic", True),
        # The certificate proves the role, or nothing does: data beside that is anything.
        (FORWARDING, "tls", False),
        (FORWARDING, "none", False),
    ],
)
async def test_a_client_is_introduced_to_its_broker_with_the_credentials_that_are_forwarded(
    keys: dict[str, Any], method: str, forwarded: bool, relayed: bool
) -> None:
    async with court(**PROXY_ROLE, **keys) as held:
        client = await held.client("alice", target=held.target if relayed else None, auth_method_name=method)
        if not relayed:
            await client.lookup(TOPIC)
        (seen,) = connects(held)
        assert (seen.auth_data, seen.original_principal) == (b"the proxy itself", "alice")
        given = (seen.original_auth_method, seen.original_auth_data)
        assert given == ((method, "alice") if forwarded else ("", ""))


async def test_who_proves_nothing_is_told_so_and_closed() -> None:
    async with court() as held:
        error = await turned_away(held.stage, presenting("bad secret-of-mine"))
        assert error.error == ServerError.AuthenticationError
        assert error.message.startswith("failed to authenticate")
        assert "secret" not in error.message
        await held.stage.until(lambda: held.stage.caused("authentication_failed") == 1, "a cause")
        assert connects(held) == []


@pytest.mark.parametrize(
    ("fields", "method"),
    [
        ({"auth_method_name": "basic"}, "basic"),
        ({"auth_method": pb.AuthMethodAthens}, "athens"),
        ({"auth_method": pb.AuthMethodNone}, "none"),
        ({"auth_method_name": "token", "auth_method": pb.AuthMethodYcaV1}, "token"),
        ({}, "none"),
    ],
)
async def test_the_method_is_the_name_or_the_old_number(fields: dict[str, Any], method: str) -> None:
    async with court() as held:
        await admitted(held.stage, connect_frame(auth_data=b"alice", **fields))
        assert held.judge.asked == [(method, b"alice")]


@pytest.mark.threat("requests-before-verdict")
async def test_nothing_is_served_before_the_verdict() -> None:
    async with court() as held:
        held.judge.gate.clear()
        client = await held.stage.client()
        await client.send(presenting("alice") + PING + topics_frame(7, namespace(0)))
        await held.stage.until(lambda: held.judge.running == 1, "a check")
        assert counted(held.stage.proxy.counters, "get_topics_of_namespace_requests") == 0
        held.judge.gate.set()
        kinds = [(await client.command()).type for _ in range(3)]
        assert kinds[:2] == [pb.BaseCommand.CONNECTED, pb.BaseCommand.PONG]
        assert kinds[2] == pb.BaseCommand.GET_TOPICS_OF_NAMESPACE_RESPONSE


async def test_so_many_are_checked_at_once_and_the_others_have_their_turn() -> None:
    async with court(maxConcurrentAuthentications=2) as held:
        held.judge.gate.clear()
        clients = [await held.stage.client() for _ in range(6)]
        for number, client in enumerate(clients):
            await client.send(presenting(f"role-{number}"))
        await held.stage.until(lambda: held.authentication.under_way == 6, "six checks")
        assert held.judge.running == 2
        # One that is being checked leaves, and one of those in the line.
        clients.pop(0).reset()
        clients.pop().close()
        await held.stage.until(lambda: held.authentication.under_way == 4, "four checks")
        held.judge.gate.set()
        for client in clients:
            assert (await client.command()).type == pb.BaseCommand.CONNECTED
        assert held.judge.most_at_once == 2


async def test_a_method_s_name_has_a_bound() -> None:
    async with court() as held:
        error = await turned_away(held.stage, presenting("alice", auth_method_name="m" * 65))
        text = authentication_text(PublicCause.NOT_ACCEPTED)
        assert (error.error, error.message) == (ServerError.AuthenticationError, text)
        assert held.judge.asked == []
        await admitted(held.stage, presenting("alice", auth_method_name="m" * 64))
        assert held.judge.asked == [("m" * 64, b"alice")]


@pytest.mark.threat("connect-to-silent-host")
async def test_large_credentials_hold_no_memory_while_a_broker_is_dialled() -> None:
    async with raw_broker(silence) as broker, court(**NOT_FORWARDING) as held:
        client = await held.stage.client()
        await client.send(presenting("alice" + "." * 40_000, target=f"127.0.0.1:{broker.port}"))
        await held.stage.until(lambda: broker.peers, "a broker that does not answer")
        assert held.stage.handshakes.held == 0
        assert held.stage.handshakes.statistics().peak_held > 3 * 40_000


@pytest.mark.parametrize(("tls", "shown", "admits"), [(True, True, True), (True, False, False), (False, True, False)])
async def test_a_client_has_the_role_of_its_certificate_on_the_tls_port(
    tls: bool, shown: bool, admits: bool, files: PemFiles
) -> None:
    keys = {**files.server_keys, "tlsTrustCertsFilePath": files.trust}
    async with staged(**keys, authenticationEnabled="true", authenticationProviders="tls") as stage:
        own = authority().issue_cert("any.example", common_name="alice") if shown else None
        client = await (tls_client(stage, client_context(own=own)) if tls else stage.client())
        await client.send(connect_frame(auth_method_name="tls", auth_data=b"CN=alice"))
        if admits:
            assert (await client.command()).type == pb.BaseCommand.CONNECTED
            assert [session.principal for session in stage.sessions] == [Principal("alice")]
        else:
            assert (await refused(client)).error == ServerError.AuthenticationError


# --- a client's own word counts for nothing -----------------------------------------------------------


@pytest.mark.threat("original-principal-connect")
@pytest.mark.parametrize("target", [True, False])
async def test_a_client_cannot_say_for_whom_it_speaks(target: bool) -> None:
    async with court(**PROXY_ROLE) as held:
        client = await held.client("alice", target=held.target if target else None, **SMUGGLED)
        await client.topics(namespace(0))
        (seen,) = connects(held)
        given = (seen.original_principal, seen.original_auth_data, seen.original_auth_method)
        assert given == ("alice", "alice", "token")


@pytest.mark.threat("original-principal-requests")
async def test_requests_do_not_carry_a_client_s_word_either() -> None:
    async with court() as held:
        client = await held.client("alice")
        lookup = pb.CommandLookupTopic(topic=TOPIC, request_id=1, **SMUGGLED)
        await client.send_command(pb.BaseCommand(type=pb.BaseCommand.LOOKUP, lookupTopic=lookup))
        await client.answer()
        await ask_partitions(client, **SMUGGLED)
        record = held.stage.broker.record
        asked = record.commands(CommandType.LOOKUP)[0].lookupTopic
        also = record.commands(CommandType.PARTITIONED_METADATA)[0].partitionMetadata
        assert not [field for field in SMUGGLED if asked.HasField(field) or also.HasField(field)]


# --- principals are kept apart ------------------------------------------------------------------------


async def ask_lookup(client: AsyncClient) -> None:
    await client.lookup(TOPIC)


async def ask_list(client: AsyncClient) -> None:
    await client.topics(namespace(0))


async def ask_partitions(client: AsyncClient, **fields: Any) -> None:
    metadata = pb.CommandPartitionedTopicMetadata(topic=TOPIC, request_id=7, **fields)
    await client.send_command(pb.BaseCommand(type=pb.BaseCommand.PARTITIONED_METADATA, partitionMetadata=metadata))
    await client.answer()


async def ask_schema(client: AsyncClient) -> None:
    await client.send(schema_frame(7, TOPIC))
    await client.answer()


@pytest.mark.threat("answer-of-another-principal")
@pytest.mark.parametrize("ask", [ask_lookup, ask_list, ask_partitions, ask_schema])
@pytest.mark.parametrize(("first", "second", "keys"), [("alice", "bob", NOT_FORWARDING), ("alice/1", "alice/2", {})])
async def test_questions_of_two_principals_never_share_a_connection(
    ask: Callable[[AsyncClient], Awaitable[None]], first: str, second: str, keys: dict[str, Any]
) -> None:
    async with court(**keys) as held:
        for data in (first, second, first, second):
            await ask(await held.client(data))
        # The broker judges by its connection's CONNECT: one each, and no more than that.
        heard = [(seen.original_principal, seen.original_auth_data) for seen in connects(held)]
        assert heard == [(data.partition("/")[0], "" if keys else data) for data in (first, second)]


@pytest.mark.threat("answer-of-another-principal")
async def test_two_principals_never_share_an_answer() -> None:
    async with court(**NOT_FORWARDING) as held:
        gate = held.stage.broker.script.hold(LISTS)
        clients = [await held.client(data) for data in ("alice", "bob")]
        for client in clients:
            await client.ask_topics(namespace(0))
        await held.stage.broker.record.seen(LISTS, 2)
        gate.set()
        for client in clients:
            assert (await client.answer()).type == pb.BaseCommand.GET_TOPICS_OF_NAMESPACE_RESPONSE


# --- credentials that expire ---------------------------------------------------------------------------


BOTH = pytest.mark.parametrize("forwarding", [NOT_FORWARDING, FORWARDING], ids=["kept here", "forwarded"])


async def test_a_token_of_two_seconds_is_renewed_by_the_clock_of_the_proxy_itself() -> None:
    check = round(patient(1))
    async with staged(**SIGNED, authenticationRefreshCheckSeconds=check) as stage:
        client = await admitted(stage, presenting(token_of("alice", exp=time.time() + 2 * check)))
        await challenged(client)
        await client.send(response(token_of("alice", exp=time.time() + 3 * check)))
        await client.topics(namespace(0))
        await challenged(client)
        assert await client.rest() == b""
        await stage.until(lambda: stage.caused("credentials_not_renewed") == 1, "a cause")


@pytest.mark.threat("expired-credentials")
@pytest.mark.parametrize(("keys", "method"), [(NOT_FORWARDING, "token"), ({}, "basic")])
async def test_a_relayed_client_whose_credentials_are_not_forwarded_is_closed_when_they_expire(
    keys: dict[str, Any], method: str
) -> None:
    async with court(**keys) as held:
        client = await held.client(f"alice until {NOON + 10}", target=held.target, auth_method_name=method)
        held.look()
        await client.topics(namespace(0))
        held.now += 11
        held.look()
        assert await client.rest() == b""
        await held.stage.until(lambda: held.stage.caused("credentials_expired") == 1, "a cause")


async def test_with_forwarding_a_relayed_client_is_its_broker_s_affair() -> None:
    async with court(**FORWARDING) as held:
        client = await held.client(f"alice until {NOON + 10}", target=held.target)
        held.now += 11
        held.look()
        await client.topics(namespace(0))


@BOTH
async def test_a_client_renews_its_credentials_and_goes_on_under_them(forwarding: dict[str, Any]) -> None:
    async with court(**forwarding) as held:
        client = await held.client(f"alice/1 until {NOON + 10}")
        await client.topics(namespace(0))
        held.now += 10
        gate = held.stage.broker.script.hold(LISTS)
        await client.ask_topics(namespace(1))
        held.look()
        assert (await challenged(client)).challenge.auth_method_name == "token"
        # Nobody asks twice, only the first answer counts, and a list that is under way goes on.
        held.look()
        newer = f"alice/2 until {NOON + 100}"
        await client.send(response(newer) + response("bad") + PING)
        gate.set()
        kinds = {(await client.answer()).type for _ in range(2)}
        assert kinds == {pb.BaseCommand.GET_TOPICS_OF_NAMESPACE_RESPONSE, pb.BaseCommand.PONG}
        await held.stage.until(lambda: [data for _, data in held.judge.asked][1:] == [newer.encode()], "a check")
        await client.topics(namespace(0))
        # Brokers that hear of the role alone keep their connection.
        assert connects(held)[-1].original_auth_data == (newer if forwarding is FORWARDING else "")
        assert len(connects(held)) == (2 if forwarding is FORWARDING else 1)
        held.now = NOON + 99
        held.look()
        await client.ping()
        held.now = NOON + 100
        held.look()
        await challenged(client)


@pytest.mark.threat("expired-credentials")
@BOTH
async def test_a_client_that_does_not_renew_in_time_is_closed(forwarding: dict[str, Any]) -> None:
    async with court(**forwarding) as held:
        client = await held.client(f"alice until {NOON}")
        held.look()
        await challenged(client)
        held.lose_patience()
        held.look()
        assert await client.rest() == b""
        await held.stage.until(lambda: held.stage.caused("credentials_not_renewed") == 1, "a cause")


@BOTH
async def test_a_client_that_cannot_renew_is_closed(forwarding: dict[str, Any]) -> None:
    async with court(**forwarding) as held:
        client = await held.client(f"alice until {NOON}", refresh=False)
        held.look()
        assert await client.rest() == b""
        await held.stage.until(lambda: held.stage.caused("credentials_expired") == 1, "a cause")


@pytest.mark.threat("refresh-to-another-role")
@BOTH
@pytest.mark.parametrize(
    ("data", "cause"),
    [("bob", PublicCause.ROLE_CHANGED), ("bad", PublicCause.REFUSED), (" \n", PublicCause.REFUSED)],
)
async def test_a_client_that_renews_with_what_is_not_its_own_is_refused(
    data: str, cause: PublicCause, forwarding: dict[str, Any]
) -> None:
    async with court(**forwarding) as held:
        client = await held.client(f"alice until {NOON}")
        held.look()
        await challenged(client)
        await client.send(response(data))
        refusal = await refused(client)
        assert (refusal.error, refusal.message) == (ServerError.AuthenticationError, authentication_text(cause))
        await held.stage.until(lambda: held.stage.caused("authentication_failed") == 1, "a cause")


async def test_an_answer_that_nobody_asked_for_changes_nothing() -> None:
    async with court(**FORWARDING) as held:
        client = await held.client("alice")
        await client.send(response("bob"))
        await client.ping()
        assert held.judge.asked == [("token", b"alice")]
        assert held.stage.session_of(client).principal == Principal("alice", AuthData("token", b"alice"))


async def test_without_authentication_credentials_are_passed_over() -> None:
    judge = Judge()
    async with staged(role_finder=judge) as stage:
        client = await admitted(stage, presenting("bad"))
        await client.send(response("bad"))
        await client.ping()
        await client.topics(namespace(0))
        (seen,) = stage.broker.record.commands(CommandType.CONNECT)
        for field in ("proxy_version", "auth_method_name", "auth_data", "original_principal"):
            assert not seen.connect.HasField(field)
        assert judge.asked == []


# --- with the providers of the configuration -----------------------------------------------------------


def token_of(role: str, **claims: Any) -> str:
    return signed({"sub": role, **claims}).decode()


SIGNED: dict[str, Any] = {
    "authenticationEnabled": "true",
    "authenticationProviders": "token",
    "tokenSecretKey": data_url(SECRET),
}


@pytest.mark.parametrize("method", ["token", "basic"])
async def test_credentials_that_are_withdrawn_let_nobody_in(method: str, tmp_path: Path) -> None:
    data = token_of("alice") if method == "token" else "alice:sesame"
    key, passwords = tmp_path / "key", tmp_path / "passwords"
    key.write_bytes(SECRET)
    passwords.write_text(f"alice:{ldap_sha1.hash('sesame')}\n")
    providers: dict[str, Any] = {"authenticationEnabled": "true", "authenticationProviders": "token,basic"}
    async with staged(**providers, tokenSecretKey=key, basicAuthConf=passwords) as stage:
        await admitted(stage, presenting(data, auth_method_name=method))
        key.write_bytes(SECRET[::-1])
        passwords.write_text(f"bob:{ldap_sha1.hash('sesame')}\n")
        async with in_time():
            # Until the proxy has read the files that were changed.
            while True:
                client = await stage.client()
                await client.send(presenting(data, auth_method_name=method))
                answer = await client.command()
                if answer.type != pb.BaseCommand.CONNECTED:
                    break
        assert answer.error.error == ServerError.AuthenticationError


@pytest.mark.threat("token-spelled-otherwise")
@pytest.mark.parametrize("spelling", ["{}\n", "{}\r\n", " {}", "\t{} ", "\n\n{}\f\v"])
async def test_white_space_around_a_token_is_no_part_of_it(spelling: str) -> None:
    token = token_of("alice")
    async with staged(**SIGNED, **PROXY_ROLE, **FORWARDING) as stage:
        for data in (token, spelling.format(token)):
            client = await admitted(stage, presenting(data))
            await client.topics(namespace(0))
        # Both are one principal, whose connection the two share.
        connects = stage.broker.record.commands(CommandType.CONNECT)
        assert [seen.connect.original_auth_data for seen in connects] == [token]
        await admitted(stage, presenting(spelling.format(token), target=f"127.0.0.1:{stage.broker.port}"))
        assert stage.broker.record.commands(CommandType.CONNECT)[-1].connect.original_auth_data == token


@pytest.mark.threat("token-spelled-otherwise")
@pytest.mark.parametrize(
    "spelling", ["{0} .{1}.{2}", "{0}.\n{1}.{2}", "{0}.{1}.{2}\u00a0", "\u2003{0}.{1}.{2}", "\ufeff{0}.{1}.{2}", " \n"]
)
async def test_any_other_spelling_of_a_token_is_refused(spelling: str) -> None:
    async with staged(**SIGNED) as stage:
        error = await turned_away(stage, presenting(spelling.format(*token_of("alice").split("."))))
        assert error.error == ServerError.AuthenticationError


async def test_a_password_keeps_its_white_space() -> None:
    async with court() as held:
        await admitted(held.stage, presenting("alice: pass\n", auth_method_name="basic"))
        assert held.judge.asked == [("basic", b"alice: pass\n")]


async def test_operators_see_roles_as_the_anonymizer_writes_them() -> None:
    async with court(authenticationRoleLoggingAnonymizer="redacted") as held:
        await (await held.client("alice")).topics(namespace(0))
        usage = held.stage.proxy.reports.usage
        await held.stage.until(lambda: usage.top(3).principals, "somebody who has used memory")
        assert [row.name for row in usage.top(3).principals] == ["[REDACTED]"]
