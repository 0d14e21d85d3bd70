"""`make demo-pipeline`: a storm recorded by the real proxy, every job on what it recorded, and the report.

`show.py` has what is recorded (a calm hour's worth in seconds, then storms that the limits are too small for) and the
whole; `python -m pipeline.demo` runs it.

Rule: this package starts the proxy as anybody would, by its command; it imports nothing of it.
"""
