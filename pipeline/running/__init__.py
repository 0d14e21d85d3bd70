"""Jobs as they run: `session` (how Spark is set up), `progress`, `chain` (several jobs), `stopping` (streams)."""
