"""What other limits would have done: replay of recorded arrivals through the rules of the limiter.

Start with `reference.py`, the rules in plain Python (`lines.py`: the semaphore; `turns.py`: its shares), and
`model.py`, what goes in and comes out. `kernel.py` and `kernel_*.py` are the same rules, compiled; `job.py` replays a
grid of scenarios in Spark's tasks. `grid.py` has the options of a grid, `traces.py` makes `replay_input` of events,
`slices.py` reads a part of that and multiplies the clients (`--load`, `--fleet`), `prepare.py` lays a trace out for the
kernel. Rule: the rules are those of `limiter/` and of a topic list's path, written a second time. Change both;
`tests/property/test_replay_limiter.py` runs both on the same input.
"""
