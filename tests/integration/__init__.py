"""The whole proxy with real sockets, in front of brokers that do what a test wants."""
