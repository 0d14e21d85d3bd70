"""Client connections: listening, handshake, requests, renewal of credentials, and the list of all sessions.

May import: `core` to `brokers`, `requests`, `relay`. Start with `connection.py`; `sessions.py` knows every connection.
"""
