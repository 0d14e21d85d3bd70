"""Move the unsent rest of lists to disk while their readers are slow and others wait for direct memory (ADR 20).

Decisions without I/O: `judge.py` (which lists are slow) and `space.py` (who has space on the disk). `moves.py` writes,
`read_back.py` reads (time-out: `READ_SECONDS`), both through `disk.py` in the threads of `workers.py`. `body.py` is a
list that may move, `file.py` its file, `directory.py` opens or refuses the directory. Start with
`spill.py`, which is the whole. Shares of clients while lists are on disk: `proxy/requests/reader_shares.py`.
"""
