"""The proxy's own admin API: inspect and control a running proxy, over the control socket or an address with a token.

Start with `routes.py`, which declares every route with the bounds of its parameters; `views.py` and `actions.py`
answer them (a connection's row: `connections.py`; `profile.py`, `rates.py`, `reload_report.py`: what their names
say; `hand_over.py`: the sockets go to another process). `control_socket.py` opens the socket;
`listener.py` and `access.py` let clients in, in the slots of `slots.py`; `server.py` reads requests (413 for large
bodies) and writes answers, in the slices of `paging.py`. `sources.py`: what all this sees of the proxy. The client,
`pulsar-proxy admin`, is `proxy.cli.admin`.
"""
