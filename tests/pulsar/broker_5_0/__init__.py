"""Tests on a broker of 5.0, which needs a newer Java than the others."""
