"""Observability: durations, quantiles, heavy hitters, tenants, refusals; `events/` writes the event log.

Each room counts in a module `counters` of its own; the table of metrics is in `proxy.app.metrics`.
May import: `core`, `config`, `auth`. Start with `refusals.py`.
"""
