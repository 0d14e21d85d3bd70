"""Requests to brokers' web services: routes, headers, bodies, redirects, WebSockets, topic lists under permits.

Start with `reverse_proxy.py`; `routes.py` maps paths to servers and to the care that their answers need.
"""
