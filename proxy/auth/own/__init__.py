"""Make what the proxy presents to brokers and to web services; `plugins.py` is the one place that knows all plugins."""
