"""The commands of `pulsar-proxy`; each imports what it needs when it runs, so that `health` and `top` start quickly.

May import: every room. Start with `main.py`, which declares all commands (those of `admin`: `admin/arguments.py`) and
has `print-config`. `serve.py` runs the process and handles signals; `systemd.py` notifies, `inherited.py` takes
sockets over from systemd or another proxy. `check.py` is `check-config`, `connect_check.py` its `--connect`,
`installation.py` its check of packages and the text of `--version`; `health.py`, `completions.py`,
`recover_events.py`. `top/`, `admin/`; `demo/` is also the embedded broker of the tests.
"""
