"""Own the property tests: generated inputs and schedules, virtual time."""
