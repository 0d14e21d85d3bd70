"""The version of this distribution, declared once."""

VERSION = "0.2.0"
# The proxy's version string in CONNECT to brokers and CONNECTED to clients.
NAME = f"pulsar-proxy-sidecar-{VERSION}"
SERVER_VERSION = f"-{NAME}"
