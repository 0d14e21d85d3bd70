"""The data pipeline: from the proxy's event log, through Spark, to the limits that an operator should set.

Rule: this package imports `eventlog`, pyspark and the libraries of the extra `pipeline`, never the proxy. The proxy
imports nothing of it. Start with `cli.py`, then a job of `jobs/`; docs/architecture.md names the other files by what
they are for.
"""
