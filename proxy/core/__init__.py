"""Small parts that every room uses: errors, the log, tasks with an owner, the loop's time budget, registries.

This room knows no Pulsar, no socket and no configuration key. May import: `limiter`, `protocol`.
Start with `errors.py` (every error of the proxy and the cause of every disconnect), then `tasks.py`.
"""
