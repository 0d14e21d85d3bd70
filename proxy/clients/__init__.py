"""Client connections: listening, handshake, requests, renewal of credentials, and the list of all sessions.

May import: `core` to `brokers`, `requests`, `relay`. Start with `connection.py` (its base is
`proxy/requests/client.py`: its turns at the loop, and why it is not read; `services.py`: what all share).
Refusals: `sessions.py` decides who is refused, by limits in all and by address; `listener.py` accepts, writes the
refusal, and closes TLS clients without one. Clients that leave for a newcomer: `crowds.py`, relays:
`proxy/relay/relay_crowds.py`, chosen by `newcomers.py`; an operator's pause: `accepting.py`. By the clock (`clock.py`)
`sessions.py` has handshake time-outs (TLS included), PINGs, ages, and the drain.
CONNECT: `handshake.py`. Credentials that expire later: `credential_refresh.py` in lookup mode, `_watch_relay` of
`handshake.py` for relays. Requests: `requests.py` bounds and starts them. Large frames: `large_frames.py`, slow
ones `upload_watch.py`. `connection_log.py` writes the log of connections.
"""
