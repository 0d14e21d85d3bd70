"""Relays of the event loop that share a pool of memory (`proxy/relay/memory/pool.py`).

Start with `engine.py`, which makes them. `relays.py` has the relays, `counted.py` those that also count messages by
topic, `turns.py` says who may read next.
"""
