"""The fault matrix: stages, faults, sides and engines as data (`table.py`), and what each cell must end with."""
