"""Lookup mode: what becomes of one request of a client, from its validation to its answer.

`topic_lists/` is the path of a topic list under permits (PIP-442). This room does not know relays.
May import: `core` to `brokers`. Start with `lookups.py` (lookups, their redirects, partition metadata, creation of
schemas, the texts of `maxConcurrentLookupRequests`, whose places are in `places.py`) and `forwarding.py` (how they
wait), then
`topic_lists/service.py`; `schemas.py` has GET_SCHEMA, `validation.py` has requests that are refused unasked.
`broker_turns.py`: turns of clients at a broker. `request_bytes.py`: memory for commands. `reader_shares.py`: shares of
direct memory for clients that have not shown that they read, for lists, schemas and HTTP. `arriving.py`: answers whose
bytes do not come. `client.py`: the client as requests see it, and its turns.
The parts are made in `proxy/app/client_services.py`. Redirects over HTTP are bounded in
`proxy/web/forward/redirects.py`.
"""
