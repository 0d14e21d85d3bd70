"""The commands of `pulsar-proxy`; each imports what it needs when it runs, so that `health` and `top` start quickly.

May import: every room. Start with `main.py`, which declares all commands (those of `admin`: `admin/arguments.py`). Each
command has a file (`check.py`: `check-config`, `serve.py`, `health.py`) or a folder; `demo/` is also the embedded
broker of the tests.
"""
