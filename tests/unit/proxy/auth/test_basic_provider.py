import asyncio
from pathlib import Path

import pytest

from proxy.auth.failures import Reason, SettingFault
from proxy.auth.identity import Authenticated
from proxy.auth.providers import basic
from proxy.auth.providers.htpasswd import PasswordHash, read_htpasswd
from tests.support.auth.authentication import Doorman, at_once, watching
from tests.support.auth.slow_checks import HeldChecks
from tests.support.auth.tokens import data_url
from tests.support.configured import configured
from tests.support.loops.clock import ManualClock
from tests.support.loops.loops import eventually
from tests.unit.proxy.core.test_threads import NoMore

# Made by `openssl passwd -apr1 -salt NaCl1234 sesame`, and by `htpasswd` in its other modes.
OPENSSL_APR1 = "$apr1$NaCl1234$25EIvfVymUv5ukRI6mRP2."
SHA1 = "{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ="


def doorman_of(*lines: str, clock: ManualClock | None = None) -> Doorman:
    return Doorman(
        configured(authenticationProviders="basic", basicAuthConf=data_url("\n".join(lines).encode())), clock
    )


def hashed(kind: str, password: str, **settings: object) -> str:
    import passlib.hash

    handler = getattr(passlib.hash, kind)
    return str(handler.using(**settings).hash(password) if settings else handler.hash(password))


@pytest.mark.parametrize(
    "line",
    [
        OPENSSL_APR1,
        hashed("apr_md5_crypt", "sesame"),
        hashed("md5_crypt", "sesame"),
        hashed("bcrypt", "sesame", rounds=4),
        hashed("bcrypt", "sesame", rounds=4, ident="2y"),
        hashed("ldap_sha1", "sesame"),
        hashed("des_crypt", "sesame"),
    ],
    ids=["apr1 of openssl", "apr1", "md5", "bcrypt 2b", "bcrypt 2y", "SHA", "DES"],
)
async def test_password_is_believed_and_a_wrong_one_is_not(line: str) -> None:
    doorman = doorman_of("# a comment", "", f"alice:{line}", f"bob:{SHA1}")
    assert await doorman.admits("basic", b"alice:sesame") == Authenticated("alice")
    for wrong in (b"alice:sesam", b"alice:", b"alice:secret", b"bob:sesame", b"carol:sesame", b"carol:secret"):
        refusal = await doorman.refuses("basic", wrong)
        assert refusal.reason is Reason.INVALID_TOKEN
        assert "basic: unknown user or wrong password" in str(refusal)
    assert await doorman.admits("basic", b"bob:secret") == Authenticated("bob")
    await doorman.authenticator.close()


async def test_password_may_have_colons_and_be_longer_than_bcrypt_reads() -> None:
    long = "x:" * 100
    doorman = doorman_of(f"alice:{hashed('bcrypt', long[:72], rounds=4)}", f"bob:{hashed('apr_md5_crypt', 'a:b')}")
    assert (await doorman.admits("basic", b"bob:a:b")).role == "bob"
    assert (await doorman.admits("basic", b"alice:" + long.encode())).role == "alice"
    await doorman.authenticator.close()


@pytest.mark.parametrize(
    "data", [b"alice", b"", b"\xff:x", b"alice:" + b"x" * 1025, b"a\0b:x", b"alice:x\0", b"x" * 9000 + b":y"]
)
async def test_data_that_is_no_user_and_password_is_refused(data: bytes) -> None:
    doorman = doorman_of(f"alice:{SHA1}")
    assert (await doorman.refuses("basic", data)).reason in (Reason.INVALID_AUTH_DATA, Reason.EMPTY_AUTH_DATA)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "at least one line"),
        (b"alice", "line 1"),
        (b"alice:secret", "line 1"),
        (b"alice:" + SHA1.encode() + b"\nbob:{PLAIN}secret", "line 2"),
        (b"alice:$6$rounds=5000$salt$" + b"x" * 86, "line 1"),
        (b"alice:$2b$31$" + b"x" * 53, "line 1"),
        (b":" + SHA1.encode(), "line 1"),
        (b"\xff:" + SHA1.encode(), "UTF-8"),
    ],
)
def test_file_that_is_not_understood_is_refused_by_line_and_shows_no_hash(content: bytes, says: str) -> None:
    with pytest.raises(ValueError, match=says) as refusal:
        read_htpasswd(content)
    assert "secret" not in str(refusal.value)


def test_unset_file_names_its_key() -> None:
    with pytest.raises(SettingFault, match="basicAuthConf: expected"):
        Doorman(configured(authenticationProviders="basic"))


async def test_known_client_is_let_in_again_without_a_check(monkeypatch: pytest.MonkeyPatch) -> None:
    checks = HeldChecks(monkeypatch)
    checks.end()
    doorman = doorman_of(f"alice:{SHA1}")
    await doorman.admits("basic", b"alice:sesame")
    assert at_once(doorman.admits("basic", b"alice:sesame")).role == "alice"
    assert checks.done == 1
    await doorman.refuses("basic", b"alice:wrong")
    await doorman.refuses("basic", b"bob:sesame")
    assert checks.done == 3
    await doorman.authenticator.close()


def test_changed_passwords_and_new_users_count_at_once(tmp_path: Path) -> None:
    path = tmp_path / "users"
    path.write_text(f"bob:{SHA1}\nalice:{SHA1}\n")

    @watching(configured(authenticationProviders="basic", basicAuthConf=path))
    async def _(doorman: Doorman) -> None:
        await doorman.admits("basic", b"alice:secret")
        for wrong in (b"alice:sesame", b"carol:sesame"):
            await doorman.refuses("basic", wrong)
        # Nothing is new about the first in the file.
        path.write_text(f"bob:{SHA1}\nalice:{OPENSSL_APR1}\ncarol:{OPENSSL_APR1}\n")
        await doorman.reads_files()
        await doorman.refuses("basic", b"alice:secret")
        for right in (b"alice:sesame", b"carol:sesame"):
            await doorman.admits("basic", right)


@pytest.mark.threat("password-storm")
async def test_storm_of_logins_neither_blocks_the_loop_nor_waits_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    checks = HeldChecks(monkeypatch)
    monkeypatch.setattr(basic, "MOST_WAITING", 10)
    clock = ManualClock()
    doorman = doorman_of(f"alice:{SHA1}", clock=clock)
    async with asyncio.TaskGroup() as group:
        waiting = [group.create_task(doorman.refuses("basic", b"alice:%d" % n)) for n in range(12)]
        await eventually(lambda: checks.running == basic.CHECKS_AT_ONCE, "two checks")
        # The loop runs, the line is full: the next is told at once.
        assert (await doorman.refuses("basic", b"alice:more")).reason is Reason.BUSY
        clock.advance(basic.LONGEST_WAIT_SECONDS)
        await asyncio.wait(waiting[2:])
        assert {task.result().reason for task in waiting[2:]} == {Reason.BUSY}
        checks.end()
    assert [task.result().reason for task in waiting[:2]] == [Reason.INVALID_TOKEN] * 2
    assert checks.done == 2
    await doorman.authenticator.close()


async def test_client_that_leaves_does_not_free_a_thread_that_works(monkeypatch: pytest.MonkeyPatch) -> None:
    checks = HeldChecks(monkeypatch)
    doorman = doorman_of(f"alice:{SHA1}")
    async with asyncio.TaskGroup() as group:
        leaving = [group.create_task(doorman.admits("basic", b"alice:%d" % n)) for n in range(2)]
        await eventually(lambda: checks.running == 2, "two checks")
        for task in leaving:
            task.cancel()
        await asyncio.wait(leaving)
        staying = group.create_task(doorman.admits("basic", b"alice:sesame"))
        await asyncio.sleep(0)
        assert (checks.running, staying.done()) == (2, False)
        checks.end()
    assert staying.result().role == "alice"
    await doorman.authenticator.close()


async def test_those_in_line_with_the_same_password_need_one_check(monkeypatch: pytest.MonkeyPatch) -> None:
    checks = HeldChecks(monkeypatch)
    doorman = doorman_of(f"alice:{SHA1}")
    async with asyncio.TaskGroup() as group:
        storm = [group.create_task(doorman.admits("basic", b"alice:sesame")) for _ in range(500)]
        await eventually(lambda: checks.running == 2, "two checks")
        checks.end()
    assert {task.result().role for task in storm} == {"alice"}
    assert checks.done == 2
    await doorman.authenticator.close()


async def test_few_wrong_passwords_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    checks = HeldChecks(monkeypatch)
    checks.end()
    monkeypatch.setattr(basic, "MOST_WRONG", 2)
    doorman = doorman_of(f"alice:{SHA1}")
    for guess in (b"alice:1", b"alice:2", b"alice:3", b"alice:3", b"alice:1"):
        await doorman.refuses("basic", guess)
    assert checks.asked == [b"1", b"2", b"3", b"1"]
    await doorman.authenticator.close()


async def test_closing_refuses_who_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    checks = HeldChecks(monkeypatch)
    doorman = doorman_of(f"alice:{SHA1}")
    async with asyncio.TaskGroup() as group:
        waiting = [group.create_task(doorman.refuses("basic", b"alice:%d" % n)) for n in range(3)]
        await eventually(lambda: checks.running == 2, "two checks")
        closing = group.create_task(doorman.authenticator.close())
        assert (await waiting[2]).reason is Reason.BUSY
        checks.end()
    assert closing.done()


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Give the costs of the hashes that were checked."""
    done: list[str] = []
    matches = PasswordHash.matches

    def recorded(checked: PasswordHash, password: bytes) -> bool:
        done.append(checked.cost)
        return matches(checked, password)

    monkeypatch.setattr(PasswordHash, "matches", recorded)
    return done


async def test_the_password_of_another_user_is_no_use_although_that_hash_is_checked(work: list[str]) -> None:
    doorman = doorman_of(f"dear:{hashed('bcrypt', 'hush', rounds=4)}", f"old:{hashed('apr_md5_crypt', 'sesame')}")
    for guess in (b"old:hush", b"nobody:hush", b"nobody:sesame", b"dear:sesame"):
        for _ in range(2):
            await doorman.refuses("basic", guess)
    assert len(work) == 8
    assert (await doorman.admits("basic", b"old:sesame")).role == "old"
    assert (await doorman.admits("basic", b"dear:hush")).role == "dear"
    await doorman.authenticator.close()


async def test_checks_for_which_no_thread_can_be_started_are_refused_and_take_no_place_from_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    doorman = doorman_of(f"alice:{hashed('apr_md5_crypt', 'sesame')}")
    NoMore(monkeypatch, 50)
    for _ in range(50):
        refusal = await doorman.refuses("basic", b"alice:sesame")
        assert refusal.reason is Reason.BUSY
        assert "no thread to check a password" in str(refusal)
    assert (await doorman.admits("basic", b"alice:sesame")).role == "alice"
    await doorman.authenticator.close()
