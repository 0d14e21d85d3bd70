"""Observability: durations, heavy hitters, tenants, refusals.

`events/` writes the event log. Each room has its own `counters.py`; `proxy.app.metrics` turns counters into metrics.
May import: `core`, `config`, `auth`. Start with `refusals.py`.
"""
