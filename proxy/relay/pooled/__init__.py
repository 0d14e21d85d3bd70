"""Relays of the event loop that share a pool: whose turn it is (`turns.py`), the relays (`relays.py`)."""
