"""TLS towards clients and brokers.

Start with `transport.py` (a connection; `session.py`: what seals and opens, in Rust; `shared.py`: buffers,
`streams.py`: the same for HTTP). `arrivals.py` gives clients their turns for a handshake
(`places.py`: whose), `hello.py` checks the first bytes, `handshake.py` runs the steps, `brokers.py` those with
brokers; the time-out of a handshake is in `proxy.clients.sessions`, on web ports in `proxy/web/accept.py`.
`failures.py`: causes and texts.
`files.py` reloads certificates, for every port and towards brokers; `contexts.py` makes the settings of sessions,
`suites.py` limits versions and ciphers, `revocation.py` reads revocation lists (CRLs), `signers.py` tells whose they
are, `pem.py` and `stores.py` (PKCS#12) read keys and certificates, `chains.py` orders these, `expiry.py` reads dates.
"""
