"""Event loops and virtual time."""
