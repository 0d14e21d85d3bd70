"""Observability: counters, durations, heavy hitters, refusals.

`events/` writes the event log; the metrics are made from counters in `proxy.app.metrics`.
May import: `core`, `config`, `auth`. Start with `counters.py`.
"""
