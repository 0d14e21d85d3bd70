"""The event log of the proxy: records of topic lists, their identities, and the sinks they are written to.

Start with `recorder.py`; `timeline.py` measures the stages of a request, `log.py` owns the sinks. The fields
of an event are declared in `eventlog.schema`.
"""
