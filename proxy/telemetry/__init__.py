"""What the proxy says of itself: quantiles, heavy hitters, tenants, refusals.

`events/` writes the event log. Each room has its own `counters.py`; `proxy.app.metrics` turns the counters into metrics.
May import: `core`, `config`, `auth`. Start with `refusals.py`.
"""
