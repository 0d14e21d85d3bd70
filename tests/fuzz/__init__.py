"""Any bytes whatever lead to a value or to a named refusal.

Start with `targets.py`, a row of `TARGETS` for each invariant; `documents.py` has the readers of files, HTTP and
tokens.
"""
