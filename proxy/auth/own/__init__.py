"""The proxy's own credentials for brokers and web services. Start with `plugins.py`, which knows all plugins.

`broker_credentials.py`: those that stand in a parameter, a file or the environment; `oauth2.py`: tokens of an issuer,
renewed in time. The parameters are parsed in `proxy/config/credential_parameters.py`; who may get secrets:
`proxy/brokers/gate.py` (binary) and `proxy/web/forward/own_credentials.py` (HTTP).
"""
