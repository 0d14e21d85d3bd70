"""The memory budget: the lines of the worst case, their sum, and the report that operators read.

May import `proxy.app.metrics` and all earlier rooms. Start with `budget.py`, which declares each line once;
`budget_report.py` has the words of `memory budget` in the log and in `check-config`.
"""
