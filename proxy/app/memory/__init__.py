"""What bounds what, and the memory budget: the lines of the worst case, their sum, the report that operators read.

May import `proxy.app.metrics` and all earlier rooms. Start with `nodes.py`, which declares each limit at which somebody
waits, is refused or is ended; `budget.py` multiplies these limits, and declares each line of the sum once;
`budget_report.py` has the words of `memory budget` in the log and in `check-config`.
"""
