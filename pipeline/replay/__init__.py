"""Replay, which tells the effect of other limits: it takes recorded arrivals through the rules of the limiter.

Start with `pipeline/core/model.py`, what goes in and comes out. The rules are in `kernel.py`, what happens when, and
beside it: `kernel_members.py` (requests), `kernel_groups.py` (those that share a question), `kernel_lines.py` (the
semaphore), `kernel_turns.py` (its shares), `kernel_chains.py` (queues and events), compiled as `compiled.py` says, over
the books of `layout.py`. `grid.py` has the options of a grid, `traces.py` makes `replay_input` of events
(`requests.py`: the columns of a request, `imputed.py`: gaps are filled and files written in tasks, `windows.py`: cuts),
`slices.py` reads a part of that and multiplies the clients (`--load`, `--fleet`), `prepare.py` lays a trace out for the
kernel. `job.py` replays a grid in Spark's tasks: `parts.py`, `tally.py`; `calibrate.py` replays the recorded limits.
Rule: the rules are those of `limiter/` and of a topic list's path, written a second time. Change both;
`tests/property/test_replay_limiter.py` runs both on the same input,
`tests/unit/pipeline/test_numbers_of_the_proxy.py` compares their numbers.
"""
