"""The admin API: inspect and control a running proxy, over the control socket or an address with a token.

`routes` declares every route; `views` and `actions` answer them; `listener` and `access` let clients in, `server`
reads requests and writes answers. The client of the API, `pulsar-proxy admin`, is `proxy.cli.admin`.
"""
