"""The page for people on the web port: memory, holders and waiters, brokers, the last minutes, refusals, configuration.

May import: everything of `web`. Start with `page.py`; `document.py` makes the numbers, `minutes.py` keeps the samples.
"""
