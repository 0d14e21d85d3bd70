"""The part `usage`: four tables from the table `events`, by three engines."""
