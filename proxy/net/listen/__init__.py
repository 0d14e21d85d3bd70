"""Listening sockets: opened here or taken over from another process, and how clients are accepted.

Start with `listening.py` (addresses and descriptors); `unix_sockets.py` has sockets at paths, `accept_loop.py` accepts
clients in bounded numbers and pauses while no descriptor is left.
"""
