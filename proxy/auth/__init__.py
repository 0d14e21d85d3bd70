"""Who a client is and who the proxy is to brokers.

`providers/` verify what clients present; `own/` makes what the proxy presents; the files beside them run a client's
authentication and name principals, fairness keys and anonymized roles. Nothing here writes to a socket of a client.
May import: `core`, `config`. Start with `client_authentication.py`, then `providers/registry.py`.
"""
