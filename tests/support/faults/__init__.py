"""Own what networks and peers do wrong to a TCP connection.

`kinds.py` names the faults, `carried.py` commits them on the bytes of a connection, `proxy.py` accepts and connects.
"""
