"""A proxy under mixed load with churn for as long as you like: `python -m tests.soak`, or `make soak MINUTES=60`.

Start with `driver.py`. The proxy is a child process of its own, so that its memory is its own; `census.py` counts what
is in that process when asked, at moments without any client. `slope.py` and `verdict.py` judge, without I/O.
"""
