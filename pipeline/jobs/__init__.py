"""The jobs, one module each with `add_arguments(parser)` and `run(options) -> int`; `pipeline.cli` lists them."""
