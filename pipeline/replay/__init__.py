"""What other limits would have done: replay of recorded arrivals through the rules of the limiter.

Start with `reference.py`, the rules in plain Python (`lines.py`: the semaphore; `turns.py`: its shares; `members.py`:
requests and groups; `virtual.py`: time), and `model.py`, what goes in and comes out. `kernel.py` and `kernel_*.py` are
the same rules, compiled (`compiled.py`: how; `layout.py`: its books). `grid.py` has the options of a grid, `traces.py`
makes `replay_input` of events (`imputed.py`: what was not recorded, `seen.py`: memory that was in use, `windows.py`:
cuts), `slices.py` reads a part of that and multiplies the clients (`--load`, `--fleet`), `prepare.py` lays a trace out
for the kernel. `job.py` replays a grid in Spark's tasks: `parts.py`, `engine.py`, `tally.py`, `buckets.py` (waits by
length); `calibrate.py` replays the recorded limits. Rule: the rules are those of `limiter/` and of a topic list's
path, written a second time. Change both; `tests/property/test_replay_limiter.py` runs both on the same input,
`tests/unit/pipeline/test_numbers_of_the_proxy.py` compares their numbers.
"""
