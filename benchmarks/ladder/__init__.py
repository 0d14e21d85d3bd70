"""The ladder: what each layer of the proxy costs, beside no proxy at all, the Java proxy and HAProxy.

For measurements and their report; a load test with promises for users is `tests/load/`. `run.py` is the command,
`rows.py` the words. Scenarios as data: `scenarios.py` and `*_scenarios.py`, by theme. `servers.py` starts what is
measured, `secured.py` and `certificates.py` with TLS, `tokens.py` with tokens of clients, `processes.py` runs children;
the clients and the fake broker are `loadgen/` (Rust, a module for each load). `measure.py` runs a scenario,
`estimate.py` and `verdict.py` judge; `processor.py`, `disk.py`, `machine.py` say beside what. `results.py` reads and
writes files, `report.py` and `neighbours.py` print tables.
"""
