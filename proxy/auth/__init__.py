"""Authentication of clients, and the proxy's own credentials for brokers.

`providers/` verify the credentials of clients; `own/` makes the credentials of the proxy; the files beside them run
the authentication of a client and define principals, fairness keys and anonymized roles. No module of this room writes
to a client's socket: `proxy.clients.credential_refresh` asks clients for newer credentials.
May import: `core`, `config`. Start with `client_authentication.py`, then `providers/registry.py`.
"""
