import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from proxy.cli.main import BAD_CONFIG, main, whole_parser
from proxy.config.config import Config
from tests.support.patience import patient

GOOD = "brokerServiceURL=pulsar://broker:6650\n"
ROOT = Path(__file__).resolve().parents[4]
SASL = "org.apache.pulsar.broker.authentication.AuthenticationProviderSasl"


@pytest.fixture
def conf(tmp_path: Path) -> Path:
    path = tmp_path / "proxy.conf"
    path.write_text(GOOD)
    return path


@pytest.fixture(autouse=True)
def _machine_of_unknown_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """Warnings about the memory budget depend on the machine that runs the tests."""
    for name in ("container_limit_bytes", "machine_memory_bytes"):
        monkeypatch.setattr(f"proxy.app.memory.budget_report.{name}", lambda _: None)


def check(conf: Path, *flags: str) -> int:
    return main(["check-config", "--config", str(conf), *flags])


def without_budget(out: str) -> str:
    """Return what check-config printed, without the lines of the budget."""
    lines = out.splitlines(keepends=True)
    budget = [line for line in lines if line.startswith("memory budget: ") or " MiB  " in line]
    assert 3 <= len(budget) <= 7
    return "".join(line for line in lines if line not in budget)


def errors_in(err: str) -> list[str]:
    """Return the errors that were printed."""
    return [line.removeprefix("error: ") for line in err.splitlines() if line.startswith("error: ")]


class TestCheckConfig:
    def test_a_good_file_is_called_valid(self, conf: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert check(conf) == 0
        out, err = capsys.readouterr()
        assert (without_budget(out), err) == ("configuration is valid\n", "")

    def test_the_budget_is_held_against_the_memory_that_there_is(
        self, conf: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        conf.write_text(GOOD + "maxTopicListInFlightHeapMemSizeMB=99999\n")
        monkeypatch.setattr("proxy.app.memory.budget_report.machine_memory_bytes", lambda _: 4096 * 1024 * 1024)
        assert check(conf) == 0
        out, err = capsys.readouterr()
        assert "(container: no limit, machine: 4,096 MiB)" in out
        assert "decoded topic lists" in out
        assert "warning: the configured limits allow" in err
        assert "the machine has 4,096 MiB" in err
        monkeypatch.setattr("proxy.app.memory.budget_report.container_limit_bytes", lambda _: 64 * 1024 * 1024)
        assert check(conf) == 0
        assert "the container has 64 MiB" in capsys.readouterr().err

    @pytest.mark.parametrize("as_json", [False, True])
    @pytest.mark.parametrize("line", ["", "servicePort=x\n"])
    def test_a_misspelt_key_is_refused_if_asked_for(
        self, line: str, as_json: bool, conf: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        conf.write_text(GOOD + "servicPort=6651\nzookeeperServers=zk:2181\n" + line)
        assert check(conf, "--strict", *(["--json"] * as_json)) == BAD_CONFIG
        out, err = capsys.readouterr()
        if as_json:
            found = json.loads(out)
            assert [fault["key"] for fault in found["errors"]] == ["servicePort"] * bool(line) + ["servicPort"]
            assert (found["valid"], found["errors"][-1]["line"], err) == (False, 2, "")
        else:
            assert f"error: {conf}:2: servicPort: unknown key" in err

    def test_findings_as_json_have_the_budget_and_the_warnings(
        self, conf: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        conf.write_text(GOOD + "servicPort=6651\n")
        assert check(conf, "--json") == 0
        found = json.loads(capsys.readouterr().out)
        assert found["valid"]
        assert [(warning["line"], warning["key"]) for warning in found["warnings"]] == [(2, "servicPort")]
        assert found["budget"]["budget_bytes"] >= sum(found["budget"]["largest_parts"].values()) > 0
        assert found["connect"] == []

    def test_a_configuration_with_secret_credentials_says_who_gets_them(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        path = tmp_path / "proxy.conf"
        path.write_text(
            "brokerServiceURL=pulsar://127.0.0.1:6650\nbrokerProxyAllowedIPAddresses=10.0.0.0/8\n"
            "brokerClientAuthenticationPlugin=token\nbrokerClientAuthenticationParameters=token:own-secret\n"
        )
        assert check(path) == 0
        out, err = capsys.readouterr()
        assert without_budget(out) == (
            "credentials (brokerClientAuthenticationPlugin) go only to these brokers:\n"
            "  (a) in force: those of brokerServiceURL, and the addresses of its names at their ports\n"
            "  (b) in force: those that lookup answers of known brokers named to this process\n"
            "  (c) not in force: the list of the brokers is not asked for (brokerWebServiceURL is empty)\n"
            "  (d) in force: targets inside brokerProxyAllowedIPAddresses\n"
            "configuration is valid\n"
        )
        assert err == ""

    def test_every_wrong_key_is_reported_with_all_an_operator_needs(
        self, conf: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        conf.write_text(GOOD + "servicePort=abc\n# a comment\nlogLevel=loud\nmaxMessageSize=-1\nclusterName=\\u12\n")
        monkeypatch.setenv("PULSAR_PREFIX_webServicePort", "99999")
        assert check(conf, "--set", "brokerDnsTtlSeconds=0") == BAD_CONFIG == 2
        out, err = capsys.readouterr()
        assert out == ""
        assert sorted(err.splitlines()) == sorted(
            [
                f"error: {conf}:2: servicePort: got 'abc', expected a whole number from 0 to 65535, or an empty value",
                f"error: {conf}:4: logLevel: got 'loud', expected one of debug, info, warning, error",
                f"error: {conf}:5: maxMessageSize: got '-1', expected a whole number from 1024 to 2147473407",
                f"error: {conf}:6: got '\\\\u12', expected \\u and four hexadecimal digits",
                "error: environment (PULSAR_PREFIX_): webServicePort: got '99999', "
                "expected a whole number from 0 to 65535, or an empty value",
                "error: command line: brokerDnsTtlSeconds: got '0', expected a whole number from 1 to 86400",
            ]
        )

    def test_what_serve_would_say_of_the_export_is_a_warning(
        self, conf: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("OTEL_SDK_DISABLED", "false")
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "me:word@c:4317")
        assert check(conf) == 0
        told = "got '(hidden)@c:4317', expected http://host:port or https://host:port"
        assert capsys.readouterr().err == f"warning: environment: OTEL_EXPORTER_OTLP_ENDPOINT: {told}\n"

    def test_a_file_that_is_not_there_is_an_error(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert check(tmp_path / "absent.conf") == BAD_CONFIG
        assert "no such file or directory, expected a readable file" in capsys.readouterr().err

    @pytest.mark.parametrize(
        ("lines", "errors"),
        [
            ("authenticationProviders=", ["2: authenticationProviders: expected at least one of token ("]),
            ("authenticationProviders=token", ["default: tokenSecretKey: expected tokenSecretKey or tokenPublicKey"]),
            (
                f"authenticationProviders={SASL},basic,openid",
                [
                    f"2: authenticationProviders: got '{SASL}'",
                    "default: basicAuthConf: expected a file of htpasswd",
                    "default: openIDAllowedTokenIssuers: ",
                ],
            ),
            ("authenticationProviders=basic\nbasicAuthConf=/no/such", ["3: basicAuthConf: cannot read /no/such"]),
            (
                "authenticationProviders=tls\nbrokerClientAuthenticationPlugin=token\n"
                "brokerClientAuthenticationParameters=file:///no/such",
                ["4: brokerClientAuthenticationParameters: /no/such: no such file or directory"],
            ),
        ],
    )  # fmt: skip
    def test_what_authentication_cannot_work_with_is_found_too(
        self, conf: Path, lines: str, errors: list[str], capsys: pytest.CaptureFixture[str]
    ) -> None:
        conf.write_text(f"{GOOD}{lines}\nauthenticationEnabled=true\n")
        assert check(conf) == BAD_CONFIG
        out, err = capsys.readouterr()
        told = [line for line in err.splitlines() if line.startswith("error: ")]
        assert out == ""
        for line, expected in zip(told, errors, strict=True):
            place = "" if expected.startswith("default") else f"{conf}:"
            assert line.startswith(f"error: {place}{expected}")

    @pytest.mark.parametrize("as_json", [False, True])
    def test_a_missing_file_is_told_beside_a_wrong_key(
        self, as_json: bool, conf: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        conf.write_text(
            f"{GOOD}servicePortTls=0\ntlsCertificateFilePath=/no/cert\ntlsKeyFilePath=/no/key\nlogLevel=loud\n"
            "authenticationEnabled=true\nauthenticationProviders=basic,token\nbasicAuthConf=/no/users\n"
            "tokenSecretKey=${NOT_SET}\nbrokerClientAuthenticationPlugin=magic\n"
        )
        assert check(conf, *(["--json"] * as_json)) == BAD_CONFIG
        out, err = capsys.readouterr()
        lines = [fault["text"] for fault in json.loads(out)["errors"]] if as_json else errors_in(err)
        # A key that was refused is told once: its default is no fault of the file.
        assert sorted(line.removeprefix(f"{conf}:").partition(": got")[0] for line in lines) == [
            "10: brokerClientAuthenticationPlugin", "3: tlsCertificateFilePath", "4: tlsKeyFilePath", "5: logLevel",
            "8: basicAuthConf: cannot read /no/users: No such file or directory", "9: tokenSecretKey",
        ]  # fmt: skip

    def test_it_asks_no_issuer_and_takes_what_serve_would_take(
        self, conf: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        conf.write_text(
            f"{GOOD}authenticationEnabled=true\nauthenticationProviders=openid\n"
            "openIDAllowedTokenIssuers=https://no.invalid\nopenIDAllowedAudiences=us\n"
        )
        assert check(conf) == 0
        out = without_budget(capsys.readouterr().out)
        assert out.startswith("credentials (forwardAuthorizationCredentials) go only to these brokers:\n")
        assert out.endswith("configuration is valid\n")


class TestPrintConfig:
    def test_each_key_is_printed_with_its_value_and_origin(
        self, conf: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        conf.write_text(f"{GOOD}clusterName=red\nservicePort=1\n")
        monkeypatch.setenv("clusterName", "blue")
        monkeypatch.setenv("servicePort", "2")
        assert main(["print-config", "--config", str(conf), "--set", "servicePort=7000"]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert "brokerServiceURL=pulsar://broker:6650  # file" in lines
        assert "clusterName=blue  # env" in lines
        assert "servicePort=7000  # flag" in lines
        assert "webServicePort=8080  # default" in lines
        assert len(lines) == len(list(Config.keys()))

    def test_a_wrong_configuration_is_not_printed(self, conf: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["print-config", "--config", str(conf), "--set", "servicePort=x"]) == BAD_CONFIG
        out, err = capsys.readouterr()
        assert out == ""
        assert err.startswith("error: command line: servicePort: got 'x'")


class TestArguments:
    def test_the_last_of_several_settings_wins_and_is_told(
        self, conf: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        sets = ["--set", "servicePort=1", "--set", " servicePort = 2 "]
        assert main(["print-config", "--config", str(conf), *sets]) == 0
        assert "servicePort=2  # flag" in capsys.readouterr().out
        check(conf, *sets)
        assert "warning: --set: servicePort is given more than once; the last counts" in capsys.readouterr().err

    def test_a_setting_without_a_value_is_a_wrong_configuration(self, capsys: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(SystemExit) as caught:
            main(["check-config", "--set", "servicePort"])
        assert caught.value.code == BAD_CONFIG
        assert "got 'servicePort', expected KEY=VALUE" in capsys.readouterr().err

    def test_a_setting_that_is_no_key_is_an_error(self, conf: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert check(conf, "--set", "servicPort=1") == BAD_CONFIG
        assert "servicPort: got an unknown key, expected servicePort" in capsys.readouterr().err

    def test_serve_refuses_a_wrong_configuration_before_it_does_anything(
        self, conf: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main(["serve", "--config", str(conf), "--set", "servicePort=x"]) == BAD_CONFIG
        assert "servicePort" in capsys.readouterr().err


def ended_unread(unbuffered: str, *arguments: str, errors_too: bool = False) -> tuple[int, bytes]:
    """Run a command whose output goes to a pipe that nobody reads any more."""
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-m", "proxy", *arguments]
    environ = os.environ | {"PYTHONUNBUFFERED": unbuffered}
    try:
        done = subprocess.run(
            command, cwd=ROOT, env=environ, stdout=write, stderr=write if errors_too else subprocess.PIPE,
            timeout=patient(100), check=False,
        )  # fmt: skip
    finally:
        os.close(write)
    return done.returncode, done.stderr


@pytest.mark.parametrize(
    ("command", "unbuffered"), [("completion bash", ""), ("completion bash", "1"), ("--version", "")]
)
def test_a_command_whose_reader_is_gone_ends_quietly(command: str, unbuffered: str) -> None:
    assert ended_unread(unbuffered, *command.split()) == (0, b"")


@pytest.mark.parametrize(("command", "unbuffered"), [("check-config", "1"), ("print-config", ""), ("health", "")])
def test_errors_that_nobody_has_read_are_no_success(command: str, conf: Path, unbuffered: str) -> None:
    conf.write_text("webServicePort=x\n")
    code, _ = ended_unread(unbuffered, command, "--config", str(conf), errors_too=True)
    assert code != 0


def test_a_proxy_that_is_not_ready_stays_so_for_nobody_who_reads(conf: Path) -> None:
    conf.write_text(f"{GOOD}webServicePort=1\n")
    assert ended_unread("", "health", "--config", str(conf)) == (1, b"")


@pytest.mark.parametrize("arguments", [["serve", "--help"], ["admin", "drain", "--help"], ["demo", "--help"]])
def test_a_command_parsed_alone_has_the_help_it_has_among_all(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(arguments)
    alone = capsys.readouterr().out
    with pytest.raises(SystemExit):
        whole_parser().parse_args(arguments)
    assert capsys.readouterr().out == alone


@pytest.mark.parametrize("arguments", [[], ["serv"], ["serve", "--nothing"], ["--config", "serve"]])
def test_wrong_arguments_are_named_as_by_the_parser_of_all(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(arguments)
    alone = capsys.readouterr().err
    with pytest.raises(SystemExit, match="2"):
        whole_parser().parse_args(arguments)
    assert capsys.readouterr().err == alone
