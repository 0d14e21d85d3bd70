"""HTTP: the web ports, their own pages, the way to the brokers' admin API, and the admin API of the proxy itself.

`http/` is what all of it needs, `forward/` sends requests to brokers, `admin/` serves the control socket.
May import: `core` to `clients`. Start with `port.py`, then `forward/reverse_proxy.py`.
"""
