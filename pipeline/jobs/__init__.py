"""The jobs, one module each with `add_arguments(parser)` and `run(options) -> int`; `pipeline.cli` lists them.

`ingest`, `usage`, `storms`, `whatif`, `advise`, `report`; `run` does all of these in one session; `compact`
merges files and deletes old days.
"""
