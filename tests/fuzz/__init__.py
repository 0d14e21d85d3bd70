"""Any bytes whatever lead to a value or to a named refusal.

Start with `targets.py`, a row of `TARGETS` for each invariant; `documents.py` has the readers of files, HTTP and
tokens, `http_streams.py` that of HTTP connections. `guided.py` runs libFuzzer, `own.py` a loop without it,
`natively.py` the scanners in Rust. `corpus.py` keeps inputs, `reduced.py` chooses them, `results.py` counts.
`test_targets.py` is the short version, `test_campaigns.py` is about what guides a campaign.
"""
