"""Client connections: listening, handshake, requests, renewal of credentials, and the list of all sessions.

May import: `core` to `brokers`, `requests`, `relay`. Start with `connection.py`. `listener.py` accepts clients,
`handshake.py` answers CONNECT, `requests.py` bounds and starts requests, `large_frames.py` takes permits for large
frames, `upload_watch.py` closes clients that send them too slowly, `credential_refresh.py` renews credentials.
`sessions.py` knows every connection, decides who is refused (limits in all and by address), and has what happens by the
clock: handshake time-outs (TLS included), PINGs, ages, and the drain of a shutdown.
"""
