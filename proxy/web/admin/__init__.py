"""The proxy's own admin API: inspect and control a running proxy, over the control socket or an address with a token.

Start with `routes.py`, which declares every route with the bounds of its parameters; `views` and `actions` answer them
(a connection's row: `connections`); `listener` and `access` let clients in, `server` reads requests and writes answers.
The client, `pulsar-proxy admin`, is `proxy.cli.admin`.
"""
