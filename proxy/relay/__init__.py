"""Direct mode: relay the bytes between a client and the broker that it asks for.

`direct_mode.py` connects to the broker and hands both sockets to the engine. `engine.py` is what every engine promises;
`threads.py` says how many threads there are, with the reason for the log, `engines.py` has what holds for all relays.

- The native engine moves relays on threads of the extension: `native_engine.py` has the engine, its events and its
  relays (each reads its record and books its bytes), `native_api.py` the layout of records, `hand_over.py` the sockets;
  `memory/` has what the kernel keeps, and `socket_bound.py` the bound of its sum: who ends first is by the crowds of
  `relay_crowds.py`. `logged_commands.py` takes what `relay_log.py` shows for `proxyLogLevel`.
- `small_relay.py` moves plain bytes on the event loop, for `--without-extension` only.
- `traffic.py` has what both count, and the time-out of relays on which nothing moves.

Frames for topic-list watchers: `frame_permits.py` decides when they pass, one object for each relay that sees such a
frame; `watch_limits.py` has the settings and the share of direct memory; `native_engine.py` asks there.

`topic_slots.py` counts what clients send, by topic, and slows them down; `topic_rates.py` is for `proxyLogLevel` 2.
Lookup-mode requests are in `requests`. May import: `core` to `brokers`. Start with `direct_mode.py`, then `engine.py`.
"""
