"""The event log: the schema of events, and the way of events into files. Standard library only.

The proxy writes events, and the pipeline reads them; both share only this package. Start with `schema` (the fields).
`buffer`, `drain` and `files` take events to disk; `recovery` and `total` tidy up.
"""
