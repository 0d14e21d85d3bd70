"""Listening sockets: their addresses and files (`listening.py`, `unix_sockets.py`), and how clients are accepted."""
