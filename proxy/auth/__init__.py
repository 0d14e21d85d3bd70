"""Who clients are, and who the proxy is to brokers."""
