"""Build what a release has into a folder: `python -m scripts.release` (docs/adr/0064-release-path.md).

`parts.py` builds the files, `wheelhouse.py` the archive for machines without an index, `record.py` says what was built
of what. Nothing here publishes or signs: who publishes has the keys (.github/workflows/release.yml).
"""
