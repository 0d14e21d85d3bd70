"""The event log: the schema of events, and the way of events into files. Standard library only.

The proxy writes events, and the pipeline reads them; both share only this package.
"""
