"""Simulate the adaptive publish throttle: producers, a broker whose memory fills up, one proxy or several.

    python -m benchmarks.throttle_sim [--shape NAME] [--proxies K] [--delay SECONDS]

The controllers are the proxy's own, on a clock of the simulation; `scripts/generate_throttle.py` draws the pictures of
docs/overload.md from the same runs. Nothing here is measured: a run gives the same numbers on every machine.
"""
