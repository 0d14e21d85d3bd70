"""How a host and its port stand in one text: an IPv6 address is bracketed, as its own colons would be taken for the
port's (RFC 3986, section 3.2.2).
"""


def host_port(host: str, port: int) -> str:
    """Give `host:port`, or `[address]:port` for an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
