"""Any bytes whatever lead to a value or to a named refusal.

Start with `targets.py`, a row of `TARGETS` for each invariant; `documents.py` has the readers of files, HTTP and
tokens. `corpus.py` keeps inputs; `guided.py` runs libFuzzer, `own.py` a loop without it; `test_targets.py` and
`test_fuzz_frames.py` are the short versions.
"""
