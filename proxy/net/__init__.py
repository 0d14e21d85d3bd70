"""Bytes and sockets, without any Pulsar protocol: transports, output queues, the pump for shared bodies, hang-ups.

`tls/` is the same over TLS, `spill/` moves slow readers' lists to disk, `listen/` opens and accepts. All connections of
the loop share the memory for reads.
May import: `core`, `config`, `auth`, `telemetry`. Start with `transport.py`, then `output.py` and `pump.py`.
"""
