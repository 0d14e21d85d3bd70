"""Move the unsent rest of lists to disk while their readers are slow and others wait for direct memory (ADR 20).

Decisions without I/O: `judge.py` (which lists are slow) and `space.py` (who has space on the disk). `moves.py` writes,
`read_back.py` reads, both through `disk.py` in the threads of `workers.py`. Start with `spill.py`, which is the whole.
"""
