"""Pure transformations, DataFrame to DataFrame.

A column's value is made in the file of its theme: `events`, `usage` (also waits, top_costs, sharing), `storms`,
`slowed`. `checks` says what is no event, `histograms` and `buckets` count waits by length. The tables of `usage` stand
again in `benchmarks/pipeline/usage/polar.py` and `duck.py` there, which a benchmark holds equal.
"""
