"""Every job by its command over 10^8 events: `part` (the jobs in turn), `commands` (one of them, looked at)."""
