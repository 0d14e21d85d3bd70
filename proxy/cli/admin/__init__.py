"""`pulsar-proxy admin`, `config` and `log-level`: the client of the admin API (its server is `proxy.web.admin`).

Start with `command.py`; `arguments.py` declares the options, `options.py` makes the client of them, `client.py` sends
the requests, `tables.py` prints the answers, `profile.py` prints profiles, `terminal_text.py` makes foreign texts
safe. Bounds of values are the server's (`proxy/web/admin/routes.py`); the bound of `--for` stands in
`proxy/cli/main.py`, too.
"""
