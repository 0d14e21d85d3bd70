"""A host and its port in one text; brackets keep the colons of an IPv6 address apart (RFC 3986, section 3.2.2)."""


def host_port(host: str, port: int) -> str:
    """Return `host:port`, or `[address]:port` for an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
