"""Authentication of clients, and the proxy's own credentials for brokers.

`providers/` verify the credentials of clients; `own/` makes the credentials of the proxy. `client_authentication.py`
checks within time-outs, in turns (`check_turns.py`: passwords, `failed_guesses.py`: wrong ones last,
`signature_turns.py`: tokens), by all providers together (`authenticator.py`). `client_credentials.py`: when a client's
credentials must be refreshed; `credential_holders.py`: who can renew forwarded ones; `kept_credentials.py`: their
memory. `identity.py`: principals;
`roles.py`: valid roles, their form in logs; `fairness_key.py`: who is charged; `sources.py`: files that are read again;
`failures.py`; `issuer_sockets.py`: questions to issuers.
No module of this room writes to a client's socket. Credentials that expire while a client is connected:
`proxy/clients/credential_refresh.py`, which names the other modes. Texts: `proxy/core/public_causes.py`.
May import: `core`, `config`. Start with `client_authentication.py`, then `authenticator.py`.
"""
