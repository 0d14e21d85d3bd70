"""Brokers of tests, and what is done to their connections."""
