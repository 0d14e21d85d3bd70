"""Simulate a storm of topic lists on a cluster: clients, proxies, brokers, the links between them.

    python -m benchmarks.scaling                # the tables of docs/scaling.md
    python -m benchmarks.scaling.real           # three real proxies, their event logs through the pipeline; minutes

`model.py` is pure and seeded: a run gives the same numbers on every machine. The costs of a connection, a request
or a byte were measured (`costs.py`, each cost with its source). `real.py` writes
`benchmarks/results/scaling-real.json`, and `scripts/generate_scaling.py` writes the tables and pictures of
docs/scaling.md from both.
"""
