"""The proxy's own credentials for brokers and web services. Start with `plugins.py`, which knows all plugins."""
