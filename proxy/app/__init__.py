"""The composition root: build the parts from the configuration, start them, reload them, close them in order.

No other room but `cli` sees `Proxy` as a whole. `metrics/` turns the counters of all rooms into Prometheus and OTLP, by
one table. May import: every room but `cli`. Start with `proxy.py`, then `lifecycle.py`.
"""
