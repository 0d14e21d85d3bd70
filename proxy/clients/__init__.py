"""One client connection and all of them: listening, handshake, requests, credentials that expire, sessions.

May import: `core` to `brokers`, `requests`, `relay`. Start with `connection.py`; `sessions.py` knows every connection.
"""
