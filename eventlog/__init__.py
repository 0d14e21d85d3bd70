"""The event log: the schema of events, and the way of events into files. Standard library only.

The proxy writes events, and the pipeline reads them; both share only this package. Start with `schema` (the fields).
`sink` is what makers of events see; `buffer` (bytes that wait), `drain` (the thread) and `files` (size, age, errors of
the disk) take events to disk under the names of `file_names`; `recovery` and `members` repair files of a writer that
died, `total` deletes the oldest files. `topic_admin` asks Pulsar's admin API about the event topic.
"""
