"""Lookup mode: what becomes of one request of a client, from its validation to its answer.

`topic_lists/` is the path of a topic list under permits (PIP-442). Knows nothing of relays.
May import: `core` to `brokers`. Start with `lookups.py`, then `topic_lists/service.py`.
"""
