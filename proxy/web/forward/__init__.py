"""Requests to brokers' web services: routes, headers, bodies, redirects, WebSockets, topic lists under permits.

Start with `reverse_proxy.py` (time-outs, failures); `routes.py` maps paths to servers and to the care that their
answers need, `headers.py` says which headers pass and which the proxy sets, `own_credentials.py` who gets credentials,
`redirects.py` which redirects are followed and how many (lookups: `proxy/requests/lookups.py`),
`topic_list_permits.py` has the permits of lists over HTTP. `gate.py` bounds concurrent requests, `places.py` shares
places in turns.
Bodies: `bodies.py` streams, `replay_copies.py` keeps what a redirect needs again, `uploads.py` ends slow ones;
answers: `answer_writer.py`. Servers: `upstreams.py` chooses, `broker_client.py` connects; `visits.py`: a request gives
way. HTTP lookups: `lookup_answers.py`, `broker_ports.py`. WebSockets: `websockets.py` (how many, their turns,
credentials that expire). `settings.py`: keys as limits.
"""
