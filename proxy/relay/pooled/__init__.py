"""Relays of the event loop that share a pool: the engine (`engine.py`), the relays (`relays.py`), with a meter as well
(`counted.py`), whose turn it is (`turns.py`)."""
