"""The commands of `pulsar-proxy`; each imports what it needs when it runs, so that `health` and `top` start quickly.

May import: every room. Start with `main.py`, which declares all commands (`admin/arguments.py`: the options of `admin`).
`demo/` is also the embedded broker of the tests.
"""
