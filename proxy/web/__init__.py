"""The web ports: what this proxy tells about itself, and the admin interface of brokers passed on.

The rule of every file here: what passes is never stored whole, each buffer has a bound and each wait an end. aiohttp
is imported by functions, not by modules: the proxy starts before it is there.
"""
