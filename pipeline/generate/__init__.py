"""Synthetic events of the event schema: who asks, when, what becomes of it, and where that is written."""
