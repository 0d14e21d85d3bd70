"""Keys in, an immutable `Config` out: declarations, sources, checks across keys, and documents of the values.

Each key has a single declaration, in `keys/`. Generators write proxy.conf, the reference and the Helm schema from the
declarations. The effect of a live key on a running proxy is in `proxy.app.reload`.
May import: `core`. Start with `config.py`, then `keys_table.py` and the file of one theme in `keys/`. `values.py`:
what follows from several keys. `rules.py`, `credential_targets.py`: faults and warnings across keys. `sources.py`,
`properties.py`: where values come from. `page.py`: values as a document, for `/config` and the command `config` (not
`print-config`). `credential_parameters.py`: the proxy's own credentials. Names of the Java proxy alone:
`java_keys.py`, `java_surface.py` (metrics, pages). `core.py`: the configuration in force, and what goes with it.
"""
