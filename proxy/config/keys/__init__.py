"""Declarations of all keys of proxy.conf, with a file for each theme.

Rule: names, defaults and units are the Java proxy's wherever the meaning is the same. No declaration refers to another
key; checks across keys are in `proxy.config.checks`. Start with `key.py` (what a declaration has), then any theme.
"""
