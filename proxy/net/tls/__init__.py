"""TLS towards clients and brokers. Start with `transport.py`; contexts are made in `contexts.py`."""
