"""HTTP: the web ports with their own pages, the reverse proxy to the brokers' admin API, and the proxy's own admin API.

`http/` is shared by all of this room (`http/errors.py` has the errors of our own, with `Retry-After` where a later try
helps; `http/gate.py` refuses by number and rate), `forward/` sends requests to brokers' web services, `admin/` serves
the proxy's own admin API on the control socket (a row of `admin connections`: `admin/connections.py`), `stats.py` has
/proxy-stats. `connection.py` parses what clients send, in turns.
May import: `core` to `clients`. Start with `port.py`; `pages.py` has the own pages; then `forward/reverse_proxy.py`.
"""
