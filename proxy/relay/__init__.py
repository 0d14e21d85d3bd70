"""Direct mode: relay the bytes between a client and the broker that it asks for.

`direct_mode.py` connects to the broker and hands both sockets to an engine. `engine.py` is what every engine promises;
`engine_choice.py` picks one at the start, with the reason for the log, and `engines.py` for each relay.

- On the event loop: `asyncio_engine.py` picks the class of a relay. `relay.py` moves the bytes and ends a relay
  (half-closed sides, unsent bytes: the twin is `native/src/relay/pair.rs`); `watch_relay.py` also acquires permits for
  topic lists of watchers; `counted_relay.py` counts messages. `pooled/` has an engine whose relays share a
  pool of memory, `memory/` has that pool and what the kernel keeps.
- On threads of the native extension: `native_engine.py` has the engine and its events, `native_relay.py` one relay (it
  reads the relay's record and books its bytes), `native_api.py` the calls and the layout of records, `hand_over.py`
  the sockets. `logged_commands.py` takes what `relay_log.py` shows for `proxyLogLevel`. `traffic.py` has what both
  engines count, and the time-out of relays on which nothing moves.

Frames for topic-list watchers, with both engines: `frame_permits.py` decides when they pass, one object for each relay
that sees such a frame; `watch_limits.py` has the settings and the share of direct memory; `watch_relay.py` and
`native_relay.py` ask there.

`topic_slots.py` counts what clients send, by topic, and slows them down; `rates/` has the parts of that. `counters.py`
counts. Lookup-mode requests are in `requests`. May import: `core` to `brokers`. Start with `direct_mode.py`, then
`engine.py`.
"""
