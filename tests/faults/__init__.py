"""The fault matrix: cells as data (`table.py`), what each must end with (`ends.py`), and the flows (`flows/`).

The name of a fault is in `tests/support/faults/kinds.py`; what a fault does to bytes is in `carried.py` there. `make
faults` runs the whole matrix, `short_version` chooses the cells for `make rest`. `cell.py` runs one cell in `scene.py`,
beside `neighbour.py`; `results.py` reads the file of results.
"""
