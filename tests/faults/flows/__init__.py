"""A flow for each stage: what a client does up to the stage, what it asks there, and how it hears the answer.

`flow.py` is what a flow is; `requests.py` (lookup mode), `relays.py` (direct mode, TLS, challenges), `web.py` (HTTP),
`events.py` (the event log's topic).
"""
