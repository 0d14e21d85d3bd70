"""Conformance: a fake and the real thing pass the same test."""
