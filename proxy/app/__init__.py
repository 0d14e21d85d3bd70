"""The composition root: build the parts from the configuration, start them, reload them, close them in order.

No other room but `cli` sees `Proxy` as a whole. May import: every room but `cli`. Start with `proxy.py`, which orders
the parts and runs the clock. Some files make parts: `client_services.py` what serves requests, `broker_side.py` what
leads to brokers, `identities.py` authentication of clients and the proxy's own credentials, `web_side.py` web ports,
`relay_engines.py` the engine of relays. `ports.py`: ports of Pulsar clients, and the log lines of what listens.
`overload.py`: throttles, built by a reload too.
Live keys: `Proxy.live_parts` has the parts that `reload.py` changes. `lifecycle.py` has the phases of a shutdown, which
`proxy.cli.serve` carries out. `start_checks.py` finds for `check-config` what would end the start, `secret_modes.py`
warns of secrets that others can read, `processors.py` counts processors, `cycles.py` sets when garbage is collected,
`top_document.py` is what `top` shows. `memory/` has the sum of all memory, `metrics/` the table of metrics.
"""
