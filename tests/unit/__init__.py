"""Unit tests: no sockets, no real time."""
