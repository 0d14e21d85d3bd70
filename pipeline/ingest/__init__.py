"""Ingest: from files or a topic to the tables `events` and `quarantine`.

`settings` (options), `stream` (what comes, batch by batch), `write` (each event once). The records that are no event:
`pipeline/transforms/checks.py`.
"""
