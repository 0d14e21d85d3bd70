"""Tests: unit and property on virtual time, integration on sockets, conformance and pulsar against real peers."""
