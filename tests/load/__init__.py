"""Load tests with Locust: `python -m tests.load`, or `make load`.

Rule: importing locust patches the sockets of its process, so that happens only in the children that `__main__` starts,
and in no module that pytest imports: `books`, `namespaces`, `plan`, `judge` and `session` know nothing of Locust.
Nothing here imports the proxy: it is a program at an address.
"""
