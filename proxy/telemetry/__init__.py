"""Observability: durations, quantiles, heavy hitters, tenants, refusals; `events/` writes the event log.

`refusals.py`: the outcome, the client's error text and the paced log line of a refusal, by stage. `durations.py`:
quantiles and buckets. `usage.py`: who uses most memory, found by `heavy_hitters.py`. `tenants.py`: lists by tenant.
`limiter_metrics.py`: waits at a limiter.
What is counted is declared where it is counted (`proxy.core.counters`); the table of metrics is in
`proxy.app.metrics`. May import: `core`, `config`, `auth`. Start with `refusals.py`.
"""
