"""The composition root: make the parts from the configuration, start them, reload them, end them in order.

The only room that sees `Proxy` as a whole. May import: every room but `cli`. Start with `proxy.py`,
then `lifecycle.py`.
"""
