"""Synthetic events of the event schema, for benchmarks, tests and trials of the pipeline without a proxy.

`settings` (what can be chosen), `population` (who asks), `arrivals` (when), `timeline` (what becomes of it), `chunk`
(every field of the event schema), `output` (table or files), `__main__` (the command line).
"""
