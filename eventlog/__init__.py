"""The event log: the schema of events, and the way of events into files. Standard library only.

The proxy writes events, and the pipeline reads them; both share only this package. Start with `schema` (the fields).
`sink` is what makers of events see; `buffer`, `drain` and `files` take events to disk under the names of `file_names`;
`members`, `recovery` and `total` tidy up. `topic_admin` asks Pulsar's admin API about the event topic.
"""
