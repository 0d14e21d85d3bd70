"""Unit tests of what the other tests rely on."""
