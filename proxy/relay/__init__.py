"""Direct mode: relay the bytes between a client and the broker that it asks for.

`direct_mode.py` connects to the broker and picks one of four relays. `relay.py` moves the bytes; `watch_relay.py` also
acquires permits for topic lists of watchers; `logged_relay.py` has both with lines for `proxyLogLevel`.
`topic_slots.py` counts what clients send, by topic, and slows them down; `rates/` has the parts of that.
Lookup-mode requests are in `requests`. May import: `core` to `brokers`. Start with `direct_mode.py`.
"""
