"""HTTP: the web ports with their own pages, the reverse proxy to the brokers' admin API, and the proxy's own admin API.

`http/` is shared by all of this room, `forward/` sends requests to brokers, `admin/` serves the control socket.
May import: `core` to `clients`. Start with `port.py`, then `forward/reverse_proxy.py`.
"""
