"""The composition root: make the parts from the configuration, start them, reload them, end them in order.

The only room that sees `Proxy` as a whole. `metrics/` turns the counters of all rooms into Prometheus and OTLP by one
table. May import: every room but `cli`. Start with `proxy.py`, then `lifecycle.py`.
"""
