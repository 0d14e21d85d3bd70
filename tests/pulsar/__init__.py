"""Tests on a real Apache Pulsar: the broker, the proxy and the clients are processes of their own."""
