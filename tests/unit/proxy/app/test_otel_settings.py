import pytest

from proxy.app.metrics import otel_settings as module
from proxy.app.metrics.otel_settings import OtelSettings, otel_settings

ON = {"OTEL_SDK_DISABLED": "false"}


@pytest.mark.parametrize("environ", [{}, {"OTEL_SDK_DISABLED": "true"}, {"OTEL_SDK_DISABLED": "TRUE", "X": "y"}])
def test_nothing_is_exported_unless_somebody_says_so(environ: dict[str, str]) -> None:
    assert otel_settings(environ) == (None, [])


@pytest.mark.parametrize("value", ["false", " False "])
def test_the_sdk_that_is_not_disabled_exports_with_the_defaults_of_the_specification(value: str) -> None:
    assert otel_settings({"OTEL_SDK_DISABLED": value}) == (OtelSettings(60.0, 30.0, "cumulative"), [])


def test_an_endpoint_alone_exports_nothing_and_says_what_is_missing() -> None:
    settings, (note,) = otel_settings({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318"})
    assert settings is None
    assert "OTEL_EXPORTER_OTLP_ENDPOINT" in note
    assert "OTEL_SDK_DISABLED=false" in note


def test_times_and_temporality_are_read() -> None:
    environ = {
        "OTEL_METRIC_EXPORT_INTERVAL": "15000",
        "OTEL_METRIC_EXPORT_TIMEOUT": "2500",
        "OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE": "DELTA",
    }
    assert otel_settings(ON | environ) == (OtelSettings(15.0, 2.5, "delta"), [])


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("OTEL_METRIC_EXPORT_INTERVAL", "1m"),
        ("OTEL_METRIC_EXPORT_INTERVAL", "0"),
        ("OTEL_METRIC_EXPORT_INTERVAL", "nan"),
        ("OTEL_METRIC_EXPORT_TIMEOUT", "inf"),
        ("OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE", "sometimes"),
    ],
)
def test_a_value_that_cannot_be_taken_is_named_and_the_default_stands(name: str, value: str) -> None:
    settings, (note,) = otel_settings(ON | {name: value})
    assert settings == OtelSettings()
    assert note.startswith(f"{name}: got {value!r}, expected ")


def test_no_note_has_a_secret_that_somebody_put_into_the_wrong_variable() -> None:
    secret = f"http://me:{'s3cret' * 40}@collector"
    names = [
        "OTEL_EXPORTER_OTLP_ENDPOINT",
        "OTEL_EXPORTER_OTLP_PROTOCOL",
        "OTEL_METRICS_EXPORTER",
        "OTEL_METRIC_EXPORT_INTERVAL",
        "OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE",
    ]
    for name in names:
        for value in (secret, secret.removeprefix("http://")):
            notes = otel_settings(ON | {name: value})[1]
            assert all(name in note and "s3cret" not in note for note in notes), name


@pytest.mark.parametrize("name", ["OTEL_EXPORTER_OTLP_PROTOCOL", "OTEL_EXPORTER_OTLP_METRICS_PROTOCOL"])
def test_a_protocol_that_is_not_spoken_is_said_instead_of_spoken_wrongly(name: str) -> None:
    settings, (note,) = otel_settings(ON | {name: "grpc"})
    assert settings is None
    assert note.startswith(f"{name}: got grpc, expected http/protobuf")
    assert otel_settings(ON | {name: "http/protobuf"}) == (OtelSettings(), [])


def test_the_protocol_of_metrics_is_asked_before_that_of_everything() -> None:
    environ = {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc", "OTEL_EXPORTER_OTLP_METRICS_PROTOCOL": "http/protobuf"}
    assert otel_settings(ON | environ) == (OtelSettings(), [])


@pytest.mark.parametrize("name", ["OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT"])
@pytest.mark.parametrize("value", ["collector:4317", "grpc://c:4317", "http://", "http://c:many", "c", "http://[::1"])
def test_an_endpoint_that_is_no_url_is_said_and_left_to_the_exporter(name: str, value: str) -> None:
    assert otel_settings(ON | {name: value}) == (
        OtelSettings(),
        [f"{name}: got {value!r}, expected http://host:port or https://host:port"],
    )


def test_metrics_may_have_no_exporter() -> None:
    assert otel_settings(ON | {"OTEL_METRICS_EXPORTER": "none"}) == (None, [])
    settings, (note,) = otel_settings(ON | {"OTEL_METRICS_EXPORTER": "console"})
    assert settings is None
    assert note == "OTEL_METRICS_EXPORTER: got console, expected otlp or none"


def test_a_library_that_is_missing_is_named_by_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    settings, (note,) = otel_settings(ON)
    assert settings is None
    assert "extra `otel`" in note
