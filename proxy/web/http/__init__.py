"""Parts that every HTTP exchange needs: clients and their roles, documents, errors, paths, the end of connections.

Start with `documents.py`; `clients.py` finds out who a client is, `gate.py` bounds concurrent requests.
"""
