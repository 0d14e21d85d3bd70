"""Parts that every HTTP exchange needs: clients and their roles, documents, errors, paths, the end of connections.

Start with `documents.py`; `clients.py` finds out who a client is (401, 503), `shared_rate.py` bounds the rate of
requests, `connection_places.py` keeps room for probes.
`errors.py`: the body of an error; `origins.py`: foreign pages and hosts; `paths.py`; `renderings.py`: pages made once
for many; `pieces.py`: bytes are parsed in pieces; `upgrades.py`; `endings.py`: how connections end.
"""
