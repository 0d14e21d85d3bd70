"""The event log: what one event says, and how events get into files. Standard library only.

The proxy writes events, the pipeline reads them; this package is all that the two share.
"""
