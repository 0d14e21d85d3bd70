"""The table of metrics and its two exports, Prometheus and OTLP.

A metric is a row in `upstream_rows.py`, `traffic_rows.py` or `process_rows.py`; docs and dashboards are checked against
the rows. Start with `instrument.py`.
"""
