"""Own what networks and peers do wrong to a TCP connection: the kinds of faults, and the proxy that commits them."""
