"""The table of metrics and its two exports, Prometheus and OTLP.

A metric is declared by the module that counts it, or beside the part that it is derived from (`Derived`), and listed
here: in `upstream_rows.py` if the Java proxy has it too (PIP-442's, connections, rejected requests; names and labels
are the Java proxy's), in `process_rows.py` if it is about the process, in `overload_rows.py` if it is about the
throttles, in `traffic_rows.py` if only this proxy has it. `table.py` joins these. `counters.py` and `process.py` have
numbers of the process itself. Docs and dashboards are checked against the table. Start with `reading.py`.
`prometheus.py` writes `/metrics`; `otel_settings.py` reads the environment, `export.py` keeps the interval, `otlp.py`
sends.
"""
