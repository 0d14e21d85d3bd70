"""Tests on a broker of 5.0 that authenticates and authorizes by tokens, with its defaults."""
