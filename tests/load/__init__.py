"""Load tests with Locust, for users and for `make rest`: `python -m tests.load`, or `make load`.

    options       the options, and what they are called in the environment
    books         what became of every request; the promises, and which are broken
    verdict       the end: figures, the file of promises, the exit code in the child
    __main__      scenarios in turn, the exit code of the whole; `programs`: demo and Locust as children
    shapes        how many clients at which time
    users, session   what a client does, its socket, whether an answer is right
    reconnect_storm, slow_readers, mixed_tenants   the scenarios

Rule: importing locust patches the sockets of its process, so that happens only in the children that `__main__` starts,
and in no module that pytest imports: `books` and `session` know nothing of Locust. The proxy is a program at an
address. Users read docs/behaviour.md. Measurements beside other
proxies are `benchmarks/ladder/`, not this.
"""
