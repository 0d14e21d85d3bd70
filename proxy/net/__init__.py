"""Bytes and sockets, without any Pulsar protocol: transports, output queues, the pump for shared bodies, hang-ups.

`tls/` is the same over TLS, `spill/` moves slow readers' lists to disk, `listen/` opens and accepts, `buffers/` bounds
large kernel buffers. `proxy_headers.py` reads the PROXY header of accepted clients (its format is
`protocol/proxy_header.py`). `write_watch.py` decides which slow readers are closed, `owed.py` how much memory the lists
of clients that stand still after they had read may hold. All connections of the loop share the memory for reads.
Sockets to brokers are opened in `proxy/brokers/dialer.py`.
May import: `core`, `config`, `auth`, `telemetry`. Start with `transport.py`, then `output.py` and `pump.py`.
"""
