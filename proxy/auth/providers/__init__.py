"""Providers verify the credentials of clients: tokens, OpenID Connect, certificates, passwords; a file for each.

Start with `registry.py`, which alone knows all providers. `token.py` checks tokens of this proxy's keys, `openid.py`
those of issuers (`issuer_client.py` fetches keys, `issuer_keys.py` keeps them); both by `signed_token.py` (claims) and
`verifying_keys.py` (signatures). `basic.py`: passwords, out of `htpasswd.py`. `certificate.py`: TLS. `http_header.py`:
where HTTP clients have their credentials.
"""
