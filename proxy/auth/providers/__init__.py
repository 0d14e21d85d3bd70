"""Verify what clients present: tokens, OpenID Connect, certificates, passwords; one file a provider.

`registry.py` is the only place that knows all providers. Start there.
"""
