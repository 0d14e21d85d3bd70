"""HTTP: the web ports with their own pages, the reverse proxy to the brokers' admin API, and the proxy's own admin API.

`http/` is shared by all of this room (`http/errors.py` has the errors of our own, with `Retry-After` where a later try
helps), `forward/` sends requests to brokers' web services (`forward/gate.py` refuses by number and rate), `admin/`
serves the proxy's own admin API on the control socket (a row of `admin connections`: `admin/connections.py`), `ui/` is
the page for people.
`accept.py` accepts (PROXY header, TLS, time-outs), `connection.py` parses what clients send, in turns (header too
large: 431), `server.py` answers with a page or passes on. `readiness.py` has what the readiness pages say, also while
draining; `stats.py` has /proxy-stats, `access_log.py` the access log, `runtime_settings.py` live changes by HTTP.
Bodies for brokers are streamed and have no size limit; slow ones end in `forward/uploads.py`. The own admin API
refuses large ones (413) in `admin/server.py`.
May import: `core` to `clients`. Start with `port.py`; `pages.py` has the own pages; then `forward/reverse_proxy.py`.
"""
