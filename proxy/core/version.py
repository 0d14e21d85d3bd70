"""The version of this distribution, declared once."""

VERSION = "0.1.0"
# How the proxy names itself to brokers and clients.
NAME = f"pulsar-proxy-sidecar-{VERSION}"
