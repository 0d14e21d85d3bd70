"""Providers verify the credentials of clients: tokens, OpenID Connect, certificates, passwords; a file for each.

Start with `registry.py`, which alone knows all providers.
"""
