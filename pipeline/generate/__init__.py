"""Synthetic events of the event schema: who asks, when, what becomes of it, and where that is written.

`settings` (what can be chosen), `population` (who asks), `arrivals` (when), `timeline` (what becomes of it), `chunk`
(every field of the event schema), `output` (table or files).
"""
