"""Rates of topics: what the relay counts and slows down. No I/O, no clock; nothing of the flat part of `relay`.

`slot_books.py` is the counters and limits of all topics, `topic_rates.py` is for the lines of `proxyLogLevel` only.
"""
