"""The composition root: build the parts from the configuration, start them, reload them, close them in order.

No other room but `cli` sees `Proxy` as a whole. May import: every room but `cli`. Start with `proxy.py`.
`reload.py` has the table from live keys to the steps in `reload_steps.py`; `lifecycle.py` has the phases of a shutdown,
which `proxy.cli.serve` carries out; `web_side.py` builds the web ports; `memory/` has the sum of all memory;
`metrics/` turns the counters of all rooms into Prometheus and OTLP, by one table.
"""
