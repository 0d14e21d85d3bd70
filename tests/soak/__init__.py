"""A proxy under mixed load with churn for as long as you like: `python -m tests.soak`, or `make soak MINUTES=60`.

Start with `driver.py`; `actions.py` has what clients do. The proxy (`watched_proxy.py`) is a child process of its own,
so that its memory is its own; it counts what is in it when asked, at moments without any client. `brokers.py` has its
brokers. `slope.py` and `verdict.py` judge, without I/O; `test_short_soak.py` is the short one of `make rest`.
"""
