"""Direct mode: the pair of sockets of a relayed connection, and what may slow it down or look into it.

`direct_mode.py` makes the pair, `relay.py` moves the bytes, `watch_relay.py` takes permits for topic lists that pass.
Knows nothing of lookup-mode requests. May import: `core` to `brokers`. Start with `direct_mode.py`.
"""
