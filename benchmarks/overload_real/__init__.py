"""The threshold throttle between real producers and a real broker, in a real memory cgroup, for ten minutes.

It guards that producers take turns between the marks (ADR 48).
"""
