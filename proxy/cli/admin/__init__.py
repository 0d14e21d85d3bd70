"""`pulsar-proxy admin`, `config` and `log-level`: the client of the admin API (its server is `proxy.web.admin`).

Start with `command.py`; `client.py` sends the requests, `tables.py` prints the answers.
"""
