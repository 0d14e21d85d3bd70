"""The names of log levels and of the parts of the log; apart from the log, whose libraries the configuration spares."""

LEVELS = ("debug", "info", "warning", "error")
# The parts of the proxy whose level may differ from that of the rest (`logLevelByComponent`). Changes by the admin API
# are in none: nobody can hide them alone.
COMPONENTS = {
    "auth": "credentials of clients, and those of the proxy",
    "brokers": "names, states, request connections, targets",
    "clients": "Pulsar clients: refused, ended, slow to send",
    "connections": "the connection log",
    "events": "the event log",
    "net": "sockets: TLS, slow readers, lists on disk",
    "overload": "overload control",
    "relay": "relays, and their commands (`proxyLogLevel`)",
    "requests": "refused requests",
    "web": "the web ports: requests, and what is passed on",
}
