"""`make demo-pipeline`: a storm recorded by the real proxy, every job on what it recorded, and the report.

    acts      what is recorded: a calm hour's worth in seconds, then a storm that the limits are too small for
    record    the proxy's own demo, run as a program of its own
    show      the whole; `python -m pipeline.demo`

Rule: this package starts the proxy as anybody would, by its command; it imports nothing of it.
"""
