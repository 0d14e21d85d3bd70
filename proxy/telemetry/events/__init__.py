"""The event log in the proxy: what is recorded of each topic list, and in whose name."""
