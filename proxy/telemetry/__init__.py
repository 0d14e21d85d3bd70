"""What the proxy says of itself: counters, quantiles, heavy hitters, refusals.

`metrics/` turns counters into Prometheus and OTLP by one table; `events/` writes the event log.
May import: `core`, `config`, `auth`. Start with `counters.py`, then `metrics/instrument.py`.
"""
