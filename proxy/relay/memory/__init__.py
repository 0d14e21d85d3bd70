"""The memory of relays: in the process, and in the kernel.

Start with `pool.py`, the pool that relays share for bytes that their receivers do not take. `sockets.py` bounds what
the kernel keeps for one relay, `windows.py` what senders may send ahead.
"""
