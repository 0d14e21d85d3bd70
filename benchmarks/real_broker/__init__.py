"""Topic lists at full size on a real Pulsar broker: upstream's storm, and pattern consumers that come back at once.

It guards that equal lists share a question (ADR 9), and the paces that docs/capacity.md plans with.
"""
