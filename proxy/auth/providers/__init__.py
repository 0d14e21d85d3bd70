"""Providers verify the credentials of clients: tokens, OpenID Connect, certificates, passwords; a file for each.

Only `registry.py` knows all providers. Start there.
"""
