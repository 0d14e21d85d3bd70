from pathlib import Path

import pytest

from proxy.config.config import Config, ConfigError, ReverseProxyRoute
from proxy.config.credential_targets import explained, narrowed_hosts, narrowed_networks
from proxy.config.java_keys import JAVA_ONLY, JAVA_ONLY_KEYS
from proxy.config.keys.key import snake_case
from tests.support.configured import configured, refusal

ROOT = Path(__file__).resolve().parents[4]
BROKER = {"brokerServiceURL": "pulsar://broker:6650"}


def load(text: str, directory: Path, **environ: str) -> Config:
    path = directory / "proxy.conf"
    path.write_text("brokerServiceURL=pulsar://broker:6650\n" + text, encoding="latin-1")
    return Config.load(path, environ)


def faults(**overrides: str) -> list[str]:
    return [str(problem) for problem in refusal(**overrides).problems]


def warned(*keys: dict[str, str]) -> list[str]:
    given = {name: text for each in keys for name, text in each.items()}
    return [str(warning) for warning in Config.load(overrides=given).warnings]


class TestKeys:
    def test_attributes_are_the_java_names_in_snake_case(self) -> None:
        assert snake_case("brokerProxyAllowedIPAddresses") == "broker_proxy_allowed_ip_addresses"
        for key in Config.keys():  # noqa: SIM118
            assert getattr(Config, key.attribute) is key

    def test_no_key_is_also_listed_as_unknown_to_this_proxy(self) -> None:
        assert not {key.name for key in Config.keys()} & set(JAVA_ONLY_KEYS)  # noqa: SIM118

    def test_the_pip_442_keys_have_the_proposals_defaults(self) -> None:
        config = configured()
        assert {key.name: key.default for key in Config.keys() if key.since == "pip-442"} == {  # noqa: SIM118
            "maxTopicListInFlightHeapMemSizeMB": 100,
            "maxTopicListInFlightDirectMemSizeMB": 100,
            "maxTopicListInFlightHeapMemSizePermitsAcquireTimeoutMillis": 25_000,
            "maxTopicListInFlightDirectMemSizePermitsAcquireTimeoutMillis": 25_000,
            "maxTopicListInFlightHeapMemSizePermitsAcquireQueueSize": 10_000,
            "maxTopicListInFlightDirectMemSizePermitsAcquireQueueSize": 10_000,
        }
        assert config.heap_limit_bytes == config.direct_limit_bytes == 104_857_600


class TestSources:
    def test_a_blank_number_keeps_its_default_and_a_blank_list_allows_nothing(self, tmp_path: Path) -> None:
        config = load("tcpUserTimeoutMillis=\nbrokerProxyAllowedTargetPorts=\n", tmp_path)
        assert config.tcp_user_timeout_millis == Config.tcp_user_timeout_millis.default
        assert config.broker_proxy_allowed_target_ports == ()

    def test_a_blank_port_is_off_and_an_absent_one_stands(self, tmp_path: Path) -> None:
        config = load("servicePort=\nservicePortTls=6651\nwebServicePort= \nwebServicePortTls=8443\n", tmp_path)
        assert (config.service_port, config.web_service_port, config.client_port) == (None, None, 6651)
        assert not config.warnings
        config = load("", tmp_path)
        assert (config.service_port, config.web_service_port, config.client_port) == (6650, 8080, 6650)

    def test_without_a_web_port_its_operator_is_told_where_probes_are_not(self, tmp_path: Path) -> None:
        (warning,) = load("webServicePort=\n", tmp_path).warnings
        assert (warning.key, warning.line) == ("webServicePort", 2)
        assert "/readyz" in warning.text

    def test_tls_to_brokers_that_proves_nothing_is_warned_about(self, tmp_path: Path) -> None:
        tls = "tlsEnabledWithBroker=true\nbrokerServiceURLTLS=pulsar+ssl://b\n"
        assert load(tls, tmp_path).warnings == ()
        for key, value in (("tlsHostnameVerificationEnabled", "false"), ("tlsAllowInsecureConnection", "true")):
            (warning,) = load(f"{tls}{key}={value}\n", tmp_path).warnings
            assert (warning.key, warning.line) == (key, 4)
            assert load(f"{key}={value}\n", tmp_path).warnings == ()


SECRET = {"brokerClientAuthenticationPlugin": "token", "brokerClientAuthenticationParameters": "token:own"}
LOCAL = {"brokerServiceURL": "pulsar://localhost:6650,127.0.0.2"}
CERTIFICATES = {"authenticationEnabled": "true", "authenticationProviders": "tls"}
FORWARDED, NOT_FORWARDED = ({"forwardAuthorizationCredentials": each} for each in ("true", "false"))
AUTHENTICATES = {"authenticationEnabled": "true", "authenticationProviders": "token", "tokenSecretKey": "file:///key"}


class TestFaults:
    @pytest.mark.threat("authorization-without-authentication")
    def test_authorization_without_authentication_is_refused_by_both_names(self) -> None:
        (fault,) = faults(authorizationEnabled="true", superUserRoles="admin")
        assert fault.startswith(
            "command line: authorizationEnabled: got true, expected false, or authenticationEnabled"
        )
        configured(authorizationEnabled="true", authenticationEnabled="true")

    @pytest.mark.parametrize(
        ("keys", "says"),
        [
            (
                LOCAL | SECRET | {"brokerProxyCredentialsToAnyTarget": "true"},
                "brokerProxyCredentialsToAnyTarget: true: the proxy sends the credentials of "
                "brokerClientAuthenticationPlugin to every host that a client names: set it to false, or restrict "
                "brokerProxyAllowedHostNames or brokerProxyAllowedIPAddresses, which are now *",
            ),
            (
                BROKER | {"adminApiAddress": "0.0.0.0:7070", "adminApiTokenFilePath": "/a/token"},
                "adminApiAddress: 0.0.0.0:7070 is not a loopback address: without TLS the token can be read on the way",
            ),
            (
                BROKER | {"adminApiTokenFilePath": "/a/token"},
                "adminApiTokenFilePath: has no effect without adminApiAddress",
            ),
            (BROKER | FORWARDED, "has no effect without authenticationEnabled"),
            (BROKER | {"maxConcurrentAuthentications": "256"}, "64 threads"),
        ],
    )
    def test_what_can_hardly_be_meant_is_warned_about(self, keys: dict[str, str], says: str) -> None:
        (warning,) = warned(keys)
        assert says in warning

    @pytest.mark.parametrize(
        "keys",
        [
            {"brokerProxyAllowedHostNames": "*.brokers.example"},
            {"brokerProxyAllowedIPAddresses": "10.0.0.0/8"},
            {"checkActiveBrokers": "true"},
            {"proxyRole": "sidecar"},
            {"brokerWebServiceURL": "http://[::1]:8080"},
        ],
    )
    def test_secret_credentials_for_chosen_hosts_are_not_warned_about(self, keys: dict[str, str]) -> None:
        assert not warned(LOCAL, SECRET, keys)

    def test_credentials_that_are_not_secret_are_not_explained(self) -> None:
        assert explained(configured(brokerClientAuthenticationPlugin="disabled")) == []

    def test_a_certificate_that_no_request_over_http_shows_is_explained(self) -> None:
        keys = {
            "brokerClientCertificateFilePath": "/c.pem",
            "tlsEnabledWithBroker": "true",
            "brokerServiceURLTLS": "pulsar+ssl://broker",
            "brokerWebServiceURLTLS": "https://broker",
        }
        (line,) = explained(configured(**keys))
        assert line.startswith("certificate (brokerClientCertificateFilePath) is not shown")
        for other in (CERTIFICATES, {"tlsEnabledWithBroker": "false"}, {"webServicePort": ""}):
            assert explained(configured(**(keys | other))) == []

    @pytest.mark.parametrize(
        ("keys", "in_force"),
        [
            ({}, "ab"),
            ({"brokerWebServiceURL": "http://broker:8080"}, "abc"),
            ({"brokerWebServiceURL": "http://broker:8080", "brokerProxyAllowedHostNames": "*.example"}, "abcd"),
            ({"brokerWebServiceURL": "http://broker:8080", "checkActiveBrokers": "true"}, "a"),
            ({"brokerWebServiceURL": "http://broker:8080", **AUTHENTICATES}, "ab"),
        ],
    )
    def test_the_ways_to_be_a_known_broker_are_explained(self, keys: dict[str, str], in_force: str) -> None:
        lines = explained(configured(**(SECRET | keys)))
        assert (
            "".join(line.strip()[1] for line in lines if " in force" in line and "not in force" not in line) == in_force
        )

    @pytest.mark.parametrize(
        ("keys", "names"),
        [
            (SECRET, "brokerClientAuthenticationPlugin"),
            (AUTHENTICATES, "forwardAuthorizationCredentials"),
            (SECRET | AUTHENTICATES | NOT_FORWARDED, "brokerClientAuthenticationPlugin"),
            (CERTIFICATES, ""),
        ],
    )
    @pytest.mark.parametrize(
        ("urls", "where"),
        [
            (BROKER, "brokerServiceURL"),
            (LOCAL, ""),
            ({"brokerServiceURL": "pulsar://[::1]:6650,[::ffff:127.0.0.1],LOCALHOST"}, ""),
            (LOCAL | {"brokerWebServiceURL": "http://broker:8080"}, "brokerWebServiceURL"),
            (BROKER | {"functionWorkerWebServiceURL": "http://w"}, "brokerServiceURL and functionWorkerWebServiceURL"),
            (BROKER | {"tlsEnabledWithBroker": "true", "brokerServiceURLTLS": "pulsar+ssl://broker"}, ""),
        ],
    )
    def test_secret_credentials_in_plain_text_over_a_network_are_warned_about(
        self, keys: dict[str, str], names: str, urls: dict[str, str], where: str
    ) -> None:
        warnings = [each for each in warned(urls, keys) if "plain text" in each]
        text = f"tlsEnabledWithBroker: false: {names} send credentials in plain text to {where}: anybody"
        assert [text in warning for warning in warnings] == ([True] if names and where else [])

    @pytest.mark.threat("admin-without-token")
    def test_an_admin_address_needs_a_token(self) -> None:
        (fault,) = faults(adminApiAddress="127.0.0.1:7070")
        assert fault.startswith(
            "command line: adminApiAddress: got 127.0.0.1:7070, expected nothing, or adminApiTokenFilePath beside it"
        )
        configured(adminApiAddress="[::1]:0", adminApiTokenFilePath="/a/token")

    def test_the_broker_address_is_required_and_the_file_to_change_is_named(self, tmp_path: Path) -> None:
        path = tmp_path / "proxy.conf"
        path.write_text("servicePort=1\n")
        with pytest.raises(ConfigError, match=r"proxy\.conf: brokerServiceURL: got nothing, expected pulsar://"):
            Config.load(path)

    @pytest.mark.parametrize(
        ("url", "address"),
        [
            ("pulsar://broker", (("broker", 6650),)),
            ("pulsar://broker:7000/", (("broker", 7000),)),
            ("pulsar://[::1]:6650", (("::1", 6650),)),
            ("pulsar://a, b:7000,pulsar://c, a:6650", (("a", 6650), ("b", 7000), ("c", 6650))),
        ],
    )
    def test_brokers_are_hosts_and_ports_each_once(self, url: str, address: tuple[tuple[str, int], ...]) -> None:
        assert Config.load(overrides={"brokerServiceURL": url}).broker_hosts == address

    def test_with_tls_to_brokers_it_is_the_other_key_that_counts(self) -> None:
        config = Config.load(overrides={"brokerServiceURLTLS": "pulsar+ssl://a,b:1", "tlsEnabledWithBroker": "true"})
        assert config.broker_hosts == (("a", 6651), ("b", 1))
        assert faults(tlsEnabledWithBroker="true")[0].startswith("default: brokerServiceURLTLS: got nothing")

    def test_routes_of_the_reverse_proxy_are_put_together_from_file_and_environment(self, tmp_path: Path) -> None:
        environ = {"PULSAR_PREFIX_httpReverseProxy.web.proxyTo": "http://w:80/x"}
        config = load("httpReverseProxy.web.path=/web\n", tmp_path, **environ)
        assert config.http_reverse_proxies == (ReverseProxyRoute("web", "/web", "http://w:80/x"),)
        assert config.adopt(configured()).http_reverse_proxies == config.http_reverse_proxies

    @pytest.mark.parametrize(
        ("line", "word"),
        [
            ("httpReverseProxy.web.path=/web", "web.proxyTo: got nothing"),
            ("httpReverseProxy.web.paht=/web", "an unknown key"),
            ("httpReverseProxy.web.path=web", "begins with /"),
            ("httpReverseProxy.web.proxyTo=ftp://w", "http://host:port"),
            ("httpReverseProxy.web.proxyTo=http://w:99999/", "http://host:port"),
            ("httpReverseProxy.web.proxyTo=http:///x", "http://host:port"),
        ],
    )
    def test_half_a_route_is_a_fault(self, line: str, word: str, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match=word):
            load(line, tmp_path)

    @pytest.mark.parametrize(
        ("path", "hidden"),
        [
            ("/metrics", "/metrics"),
            ("/proxy-stats/topics", "/proxy-stats"),
            ("/ui", "/ui"),
            ("/admin/v2", "/admin"),
            ("/administration", None),
            ("/", None),
        ],
    )
    def test_a_route_in_the_place_of_a_page_is_a_warning(self, path: str, hidden: str | None, tmp_path: Path) -> None:
        route = f"httpReverseProxy.a.path={path}\nhttpReverseProxy.a.proxyTo=http://w\n"
        told = [str(each) for each in load(route, tmp_path).warnings]
        assert [f"takes the place of {hidden} of this proxy" in each for each in told] == [True] * bool(hidden)

    def test_urls_of_web_services_may_have_a_path(self) -> None:
        # The Java proxy puts its one URL, without a final slash, before each path.
        for value in ("http://h:8080/base", "http://h/a/b/,https://[::1]:443/c", "http://h/", "http://h/~a/%20;v=1"):
            config = configured(brokerWebServiceURL=value)
            assert config.broker_web_service_url == tuple(value.split(","))
        for wrong in (
            "http://h/a?b",
            "http://h/a#b",
            "http://h/a b",
            "http://u@h/a",
            "http://h/a/../b",
            "http://h:0/a",
        ):
            with pytest.raises(ConfigError, match=r"\[/path\]"):
                configured(brokerWebServiceURL=wrong)

    @pytest.mark.parametrize(
        ("key", "value"),
        [
            ("servicePort", "\uff16"),
            ("servicePort", ""),
            ("brokerServiceURL", "pulsar://a:6650,pulsar+ssl://b:6651"),
            ("brokerServiceURL", "pulsar://a:6650,,b:6650"),
            ("brokerServiceURL", "http://broker:8080"),
            ("brokerServiceURL", "pulsar://broker:0"),
            ("brokerServiceURL", "pulsar://user@broker"),
            ("brokerServiceURL", "pulsar://"),
            ("adminApiAddress", "7070"),
            ("adminApiAddress", "proxy.example:7070"),
            ("adminApiAddress", "::1:7070"),
            ("adminApiAddress", "127.0.0.1:70000"),
            ("adminApiAddress", "[127.0.0.1]:1"),
            ("maxConcurrentLookupRequests", "0"),
            ("brokerProxyAllowedTargetPorts", "6650,seven"),
            ("brokerProxyAllowedIPAddresses", "10.0.0.0/33"),
            ("brokerProxyAllowedHostNames", "a b"),
            ("clusterName", "a\nb"),
            ("bindAddress", "no spaces"),
            ("logFormat", "xml"),
            ("httpRequestsMaxPerSecond", "fast"),
            ("proxyHttpResponseHeadersJson", '{"a": 1}'),
            ("brokerWebServiceURL", "pulsar://b:1"),
            ("brokerWebServiceURL", "*"),
            ("functionWorkerWebServiceURL", "*"),
            ("brokerWebServiceURL", "http://b:70000"),
        ],
    )
    def test_a_value_out_of_its_range_is_refused_by_name(self, key: str, value: str) -> None:
        (found,) = faults(adminApiTokenFilePath="/a/token", **{key: value})
        assert f"{key}: got " in found

    @pytest.mark.parametrize(
        "key",
        [
            "brokerProxyAllowedHostNames",
            "brokerProxyAllowedIPAddresses",
            "brokerProxyAllowedTargetPorts",
            "brokerWebServiceAllowedTargetPorts",
        ],
    )
    def test_a_star_is_all_where_a_key_says_what_is_allowed(self, key: str) -> None:
        config = configured(**{key: "*"})
        assert getattr(config, snake_case(key)) == ("*",)

    def test_keys_that_contradict_each_other_are_refused(self) -> None:
        found = faults(
            servicePort="7000",
            webServicePort="7000",
            topicListMaxAnswerBytes="2097153",
            maxTopicListInFlightDirectMemSizeMB="2",
            maxTopicListInFlightHeapMemSizeMB="1",
        )
        assert found == [
            "command line: webServicePort: got 7000, expected a port other than servicePort",
            "command line: topicListMaxAnswerBytes: got 2097153, "
            "expected at most maxTopicListInFlightHeapMemSizeMB (1048576 bytes)",
            "command line: topicListMaxAnswerBytes: got 2097153, "
            "expected at most maxTopicListInFlightDirectMemSizeMB (2097152 bytes)",
        ]


class TestWarnings:
    def test_a_key_of_the_java_proxy_is_told_from_a_misspelt_one(self, tmp_path: Path) -> None:
        config = load("numAcceptorThreads=8\nservcePort=1\nqwertz=1\n", tmp_path)
        assert [str(warning).removeprefix(f"{tmp_path}/") for warning in config.warnings] == [
            "proxy.conf:2: numAcceptorThreads: the Java proxy knows this key, this proxy does not: ignored; "
            + JAVA_ONLY["numAcceptorThreads"].why,
            "proxy.conf:3: servcePort: unknown key, ignored; did you mean servicePort?",
            "proxy.conf:4: qwertz: unknown key, ignored",
        ]

    def test_a_java_only_key_at_its_default_is_passed_over(self, tmp_path: Path) -> None:
        java_defaults = "".join(f"{key}={value}\n" for key, value in JAVA_ONLY_KEYS.items() if value is not None)
        assert load(java_defaults, tmp_path).warnings == ()

    def test_a_repeated_key_is_warned_about_and_the_last_line_wins(self, tmp_path: Path) -> None:
        config = load("servicePort=1\nservicePort=2\n", tmp_path)
        assert config.service_port == 2
        assert config.warnings[0].text == "already set in line 2; this line wins"

    def test_control_characters_of_an_unknown_key_do_not_reach_the_warning(self, tmp_path: Path) -> None:
        config = load("a\\nforged=1\n", tmp_path)
        assert str(config.warnings[0]).isprintable()

    def test_a_limit_of_zero_and_a_wait_that_never_ends_first_are_doubted(self) -> None:
        config = configured(
            maxTopicListInFlightHeapMemSizeMB="0",
            topicListRequestTimeoutMillis="25000",
            maxTopicListInFlightDirectMemSizePermitsAcquireTimeoutMillis="25001",
            keepAliveIntervalSeconds="75",
        )
        assert [warning.key for warning in config.warnings] == [
            "maxTopicListInFlightHeapMemSizeMB",
            "maxTopicListInFlightDirectMemSizePermitsAcquireTimeoutMillis",
            "brokerProxyReadTimeoutMs",
        ]
        assert config.topic_list_answer_limit_bytes == config.direct_limit_bytes


class TestReplace:
    def test_a_dynamic_key_changes_in_a_copy(self) -> None:
        config = configured()
        changed = config.replace({"logLevel": "Debug"})
        assert (config.log_level, changed.log_level) == ("info", "debug")
        assert (changed.origin(Config.log_level), changed.origin("brokerServiceURL")) == ("live", "flag")

    def test_every_static_key_refuses_a_live_change_by_name(self) -> None:
        config = configured()
        static = [key for key in Config.keys() if not key.dynamic]  # noqa: SIM118
        assert static
        for key in static:
            with pytest.raises(ConfigError, match=f"{key.name}: got a change .* expected a restart"):
                config.replace({key.name: key.default_text})

    def test_a_live_change_meets_the_same_checks_as_a_file(self) -> None:
        config = configured(topicListMaxAnswerBytes="2097152")
        with pytest.raises(ConfigError, match="at most maxTopicListInFlightHeapMemSizeMB"):
            config.replace({"maxTopicListInFlightHeapMemSizeMB": "1"})
        with pytest.raises(ConfigError, match="unknown key"):
            config.replace({"nonsense": "1"})


class TestAdopt:
    def test_dynamic_keys_are_taken_and_the_others_stay(self) -> None:
        config = configured(servicePort="7001", logLevel="debug")
        newer = configured(servicePort="7002", keepAliveIntervalSeconds="5")
        adopted = config.adopt(newer)
        assert (adopted.service_port, adopted.log_level, adopted.keep_alive_interval_seconds) == (7001, "info", 5)
        assert {key.name for key in config.differences(newer)} == {
            "servicePort",
            "logLevel",
            "keepAliveIntervalSeconds",
        }
        assert [key.name for key in adopted.differences(newer)] == ["servicePort"]

    def test_warnings_are_those_of_what_is_in_force(self) -> None:
        newer = configured(maxTopicListInFlightHeapMemSizeMB="0")
        adopted = configured().adopt(newer)
        assert [warning.key for warning in adopted.warnings] == ["maxTopicListInFlightHeapMemSizeMB"]


def test_the_sample_file_loads_without_a_fault_or_a_warning_and_changes_nothing() -> None:
    config = Config.load(ROOT / "proxy.conf")
    assert config.warnings == ()
    assert [key.name for key, _, origin in config.items() if origin != "default"] == ["brokerServiceURL"]


def test_more_password_threads_than_there_can_be_are_accepted() -> None:
    assert configured(maxConcurrentAuthentications="256").password_threads == 64


@pytest.mark.parametrize(
    ("patterns", "narrowed"),
    [
        (["broker-0.example"], True),
        (["broker-*.pulsar.svc.cluster.local", "*.example"], True),
        (["*.example", "pulsar-broker-*"], False),
        (["*.*"], False),
        (["*.example."], True),
        (["*.1"], False),
        (["10.0.0.1", "2001:db8::1"], True),
        ([], False),
    ],
)
def test_a_pattern_that_ends_in_no_name_of_a_domain_narrows_nothing(patterns: list[str], narrowed: bool) -> None:
    assert narrowed_hosts(patterns) is narrowed


@pytest.mark.parametrize(
    ("networks", "narrowed"),
    [
        (["10.0.0.0/8", "fc00::/7", "192.168.*.*"], True),
        (["10.0.0.0/8", "*"], False),
        (["1-255.*.*.*"], False),
        (["::ffff:0:0/96"], False),
        (["::ffff:0-7fff:*", "128.0.0.0/1"], False),
        (["::ffff:10.0.0.0/104"], True),
        ([], False),
    ],
)
def test_networks_that_are_most_of_all_addresses_narrow_nothing(networks: list[str], narrowed: bool) -> None:
    assert narrowed_networks(networks) is narrowed


def test_times_without_limit_in_the_java_proxy_are_taken() -> None:
    assert configured(metricsServletTimeoutMs="0").metrics_servlet_timeout_ms == 3_600_000
