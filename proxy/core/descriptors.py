"""The limit of open files of this process, sockets among them."""

import resource


def descriptor_limit() -> int | None:
    """Return the most descriptors that this process may have; None without a limit."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if soft == resource.RLIM_INFINITY else soft


def raise_descriptor_limit() -> int:
    """Raise the limit, for this process and its children, as far as it may be; return it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # A hard limit above a smaller fs.nr_open cannot be set even to itself.
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard
