"""Keys of shutdown, logs and control."""

from proxy.config.keys.key import Key, address, boolean, choice, component_levels, decimal, text, whole
from proxy.config.keys.units import HOUR_MILLIS, MILLIS


class OperationKeys:
    """Keys of shutdown, logs and control."""

    section = "Operation"

    control_socket_path = Key(
        "controlSocketPath", "", text(),
        doc="Unix socket (mode 0600) of the admin API, which `pulsar-proxy top` and `admin` use. Empty: "
        "`pulsar-proxy-<servicePort>.sock` in `XDG_RUNTIME_DIR`, or in a directory of the user under the temporary "
        "directory. `none`: no socket.",
    )  # fmt: skip
    admin_api_address = Key(
        "adminApiAddress", "", address(),
        doc="Additional address and port of the admin API, such as 127.0.0.1:7070, without TLS; requires "
        "adminApiTokenFilePath. Empty: only the control socket.",
    )  # fmt: skip
    admin_api_token_file_path = Key(
        "adminApiTokenFilePath", "", text(),
        doc="File with the token, at least 16 characters, that requests to adminApiAddress must present. The file is "
        "read for each request, so a new token needs no restart.",
    )  # fmt: skip
    proxy_role = Key(
        "proxyRole", "gateway", choice("gateway", "sidecar"),
        doc="`gateway`: at SIGTERM, report not ready first so that the load balancer stops sending clients, then "
        "stop accepting. `sidecar`: serve the application beside the proxy until its connections are gone.",
    )  # fmt: skip
    shutdown_pre_drain_millis = Key(
        "shutdownPreDrainMillis", 5000, whole(0, HOUR_MILLIS), unit=MILLIS, dynamic=True,
        doc="Time between reporting not ready and no longer accepting, for load balancers to notice; only a gateway "
        "that SIGTERM stops waits.",
    )  # fmt: skip
    shutdown_drain_millis = Key(
        "shutdownDrainMillis", 15_000, whole(0, HOUR_MILLIS), unit=MILLIS, dynamic=True,
        doc="Longest time for a drain before open connections are closed. A gateway's begins after "
        "shutdownPreDrainMillis, a sidecar's at SIGTERM.",
    )  # fmt: skip
    proxy_log_level = Key(
        "proxyLogLevel", "0", choice("0", "1", "2"), since="pulsar", dynamic=True,
        doc="Detail about relayed connections: 0 nothing, 1 their commands in the log, 2 also rates of each topic. A "
        "change applies to new connections.",
        better="bounded in memory and in lines a second; level 2 shows rates of topics, never payloads",
    )  # fmt: skip
    core_dump_enabled = Key(
        "coreDumpEnabled", False, boolean(),
        doc="Let the kernel write a core dump after a crash. A dump holds keys, tokens and passwords of clients: "
        "enable this only to find a crash.",
    )  # fmt: skip
    log_level = Key(
        "logLevel", "info", choice("debug", "info", "warning", "error"), dynamic=True,
        doc="Lowest level of log lines that are written.",
    )  # fmt: skip
    log_level_by_component = Key(
        "logLevelByComponent", (), component_levels(), dynamic=True,
        doc="Levels of parts of the log that differ from logLevel, such as `brokers=debug,web=warning`. The field "
        "`component` of a line names its part: auth, brokers, clients, connections, events, net, overload, relay, "
        "requests or web.",
    )  # fmt: skip
    connection_log_percent = Key(
        "connectionLogPercent", 0.0, decimal(0, 100), unit="percent", dynamic=True,
        doc="Part of the client connections that the connection log has: a line when CONNECT is accepted, a line with "
        "cause, bytes and duration when the connection ends. 0: none.",
    )  # fmt: skip
    log_format = Key(
        "logFormat", "json", choice("json", "console"),
        doc="`json`: an object per line, for machines. `console`: for people.",
    )  # fmt: skip
