"""TLS towards clients and brokers: contexts, files, handshakes, and the transport itself."""
