"""Shutdown, logs, control."""

from proxy.config.keys.key import Key, address, choice, text, whole
from proxy.config.keys.units import HOUR_MILLIS, MILLIS

OPERATION = "Operation"


class OperationKeys:
    """Shutdown, logs, control."""

    control_socket_path = Key(
        "controlSocketPath", "", text(), section=OPERATION,
        doc="Unix socket (mode 0600) of the admin API, which `pulsar-proxy top` and `admin` use. Empty: "
        "`pulsar-proxy-<servicePort>.sock` in `XDG_RUNTIME_DIR`, else in a directory of the user's own under the "
        "temporary directory. `none`: no socket.",
    )  # fmt: skip
    admin_api_address = Key(
        "adminApiAddress", "", address(), section=OPERATION,
        doc="Address and port on which the admin API is served as well, such as 127.0.0.1:7070, without TLS; needs "
        "adminApiTokenFilePath. Empty: on the control socket only.",
    )  # fmt: skip
    admin_api_token_file_path = Key(
        "adminApiTokenFilePath", "", text(), section=OPERATION,
        doc="File with the token that whoever comes to adminApiAddress has to know, at least 16 characters; read for "
        "each request, so that a new one needs no restart.",
    )  # fmt: skip
    proxy_role = Key(
        "proxyRole", "gateway", choice("gateway", "sidecar"), section=OPERATION,
        doc="`gateway`: at SIGTERM leave the load balancer first, then stop accepting. `sidecar`: serve the "
        "application beside it until that has gone.",
    )  # fmt: skip
    shutdown_pre_drain_millis = Key(
        "shutdownPreDrainMillis", 5000, whole(0, HOUR_MILLIS), section=OPERATION, unit=MILLIS, dynamic=True,
        doc="Time between not being ready and not accepting any more, for load balancers to notice; only a gateway "
        "that was told to stop by SIGTERM waits.",
    )  # fmt: skip
    shutdown_drain_millis = Key(
        "shutdownDrainMillis", 15_000, whole(0, HOUR_MILLIS), section=OPERATION, unit=MILLIS, dynamic=True,
        doc="Time that open connections get after SIGTERM before they are closed.",
    )  # fmt: skip
    proxy_log_level = Key(
        "proxyLogLevel", "0", choice("0", "1", "2"), since="pulsar", section=OPERATION, dynamic=True,
        doc="What is noted of relayed connections: 0 nothing, 1 their commands in the log, 2 also rates of each topic. "
        "A change is for connections from then on.",
        better="bounded in memory and in lines a second; level 2 shows rates of topics, never payloads",
    )  # fmt: skip
    log_level = Key(
        "logLevel", "info", choice("debug", "info", "warning", "error"), section=OPERATION, dynamic=True,
        doc="Least severe log lines that are written.",
    )  # fmt: skip
    log_format = Key(
        "logFormat", "json", choice("json", "console"), section=OPERATION,
        doc="`json`: one object a line, for machines. `console`: for people.",
    )  # fmt: skip
