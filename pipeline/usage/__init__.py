"""Usage: from the table `events` to `usage`, `waits`, `sharing`, `top_costs` and `slowed`, as a batch or as a stream.

`settings`, `tables` (whose they are, how parts are added up), `batch`, `stream`. The columns are made by
`pipeline/transforms/usage.py` and `pipeline/transforms/slowed.py`.
"""
