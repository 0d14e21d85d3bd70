"""Requests to brokers' web services: routes, headers, bodies, redirects, WebSockets, topic lists under permits.

Start with `reverse_proxy.py`; `routes.py` says which path leads where and what care it needs.
"""
