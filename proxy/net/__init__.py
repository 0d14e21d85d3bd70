"""Bytes and sockets, without a word of Pulsar: transports, output queues, the pump for shared bodies, hang-ups.

`tls/` is the same over TLS. Memory for reads is shared by all connections of the loop.
May import: `core`, `config`, `auth`, `telemetry`. Start with `transport.py`, then `output.py` and `pump.py`.
"""
