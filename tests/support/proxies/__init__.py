"""Whole proxies, or whole paths through a proxy, and the checks that nothing of a test is left."""
