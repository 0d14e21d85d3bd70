"""The memory of relays: the pool that they share (`pool.py`), and what the kernel keeps for them (`sockets.py`)."""
