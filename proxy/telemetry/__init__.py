"""Observability: counters, durations, heavy hitters, refusals.

`metrics/` exports the counters to Prometheus and OTLP from one table; `events/` writes the event log.
May import: `core`, `config`, `auth`. Start with `counters.py`, then `metrics/instrument.py`.
"""
