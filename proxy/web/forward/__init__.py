"""Requests to brokers' web services: routes, headers, bodies, redirects, WebSockets, topic lists under permits.

Start with `reverse_proxy.py`; `routes.py` maps paths to servers and to the care that their answers need, `headers.py`
says which headers pass and which the proxy sets, `redirects.py` says which redirects are followed, `bodies.py` keeps
what a redirect needs again, and `topic_list_permits.py` has the permits of lists over HTTP.
"""
