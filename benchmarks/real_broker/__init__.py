"""Topic lists at full size on a real Pulsar broker: upstream's storm, and pattern consumers that come back at once."""
