"""Observability: durations, quantiles, heavy hitters, refusals.

`events/` writes the event log. Each room has counters of its own, which `proxy.app.metrics` turns into metrics.
May import: `core`, `config`, `auth`. Start with `refusals.py`.
"""
