"""The proxy: sockets, tasks, configuration, telemetry, in rooms.

A room imports only rooms before it in this list (`tests/test_layering.py`; requests and relay do not know each other):
`core`, `config`, `auth`, `telemetry`, `net`, `brokers`, `requests`, `relay`, `overload`, `clients`, `web`, `app`,
`cli`.
Each room's docstring says what it is for and where to start reading. `app.proxy` puts the parts together,
`cli.main` starts them.
"""
