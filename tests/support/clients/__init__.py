"""Pulsar clients of tests: asynchronous, blocking, and as the path of topic lists sees them."""
