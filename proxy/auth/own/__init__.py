"""The proxy's own credentials for brokers and web services; only `plugins.py` knows all plugins."""
