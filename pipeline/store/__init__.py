"""Where tables are kept, on whatever file system Spark has.

`tables` reads and changes them; `days` says which days have new events, `history` and `drift` what earlier runs said.
"""
