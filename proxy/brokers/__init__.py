"""The brokers behind this proxy: which there are, which of them can be reached, and whose turn it is."""
