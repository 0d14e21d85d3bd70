"""Bytes and sockets, without any Pulsar protocol: transports, output queues, the pump for shared bodies, hang-ups.

`tls/` is the same over TLS, `spill/` moves slow readers' lists to disk, `listen/` opens and accepts, `send_buffers.py`
bounds large kernel buffers, `sockets.py` asks the kernel. `transport.py` reads and closes (`LINGER_SECONDS`),
`hangup.py` notices peers that leave unread, `ended_sockets.py` keeps what the kernel has to send after an end; the
engine's threads have these times again in `native/src/relay/pair.rs`.
Writing: `output.py` (order, permits), `pump.py` (large bodies, in turns), `body_turn.py` (one body; over
HTTP `proxy/web/forward/answer_writer.py`), `away.py` (bodies that threads write). `write_watch.py` decides which slow
readers are closed, `owed.py` how much memory the lists of clients that stand still after they had read may hold.
Senders: `upload_rate.py` measures; `proxy/clients/upload_watch.py` and `proxy/web/forward/uploads.py` close.
`proxy_headers.py` reads the PROXY header of accepted clients (its format is `protocol/proxy_header.py`),
`trusted_balancers.py` says whose. Sockets to brokers are opened in `proxy/brokers/dialer.py`; `dial_places.py` has the
places for hosts that clients make up.
May import: `core`, `config`, `auth`, `telemetry`. Start with `transport.py`, then `output.py` and `pump.py`.
"""
