"""Lookup mode: what becomes of one request of a client, from its validation to its answer.

`topic_lists/` is the path of a topic list under permits (PIP-442). This room does not know relays.
May import: `core` to `brokers`. Start with `lookups.py` (lookups, partition metadata, their concurrency limit) and
`forwarding.py` (how they wait), then `topic_lists/service.py`; `schemas.py` has schemas, `validation.py` has requests
that are refused unasked.
"""
