"""Rates of topics: what the relay counts and slows down. No I/O, no clock; nothing of the flat part of `relay`.

`token_bucket.py` is one limit, `slot_books.py` the counters and limits of all topics, `client_meter.py` what one client
sends. `topic_rates.py` is for the lines of `proxyLogLevel` only. Start with `slot_books.py`.
"""
