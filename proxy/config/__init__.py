"""Keys in, an immutable `Config` out: declarations, sources, checks across keys, and how keys are shown.

A key is declared once, in `keys/`; proxy.conf, the reference and the Helm schema are generated from the declarations.
May import: `core`. Start with `config.py`, then `keys_table.py` and the file of one theme in `keys/`.
"""
