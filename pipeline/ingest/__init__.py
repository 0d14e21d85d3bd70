"""Ingest: from files or a topic to the tables `events` and `quarantine`, as a batch or as a stream."""
