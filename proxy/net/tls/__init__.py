"""TLS towards clients and brokers.

Start with `transport.py`. `arrivals.py` gives clients their turns for a handshake, `handshake.py` runs its steps; the
time-out of a handshake is in `proxy.clients.sessions`. `contexts.py` makes contexts, `suites.py` limits their versions
and ciphers, `revocation.py` reads revocation lists (CRLs), `files.py` reloads certificates.
"""
