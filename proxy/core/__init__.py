"""Small parts that every room uses: errors, the log, tasks with an owner, the loop's time budget, registries.

This room knows no Pulsar, no socket and no configuration key. May import: `limiter`, `protocol`. Start with
`errors.py` (every error of the proxy, its text and code for a client, the cause of every disconnect;
`public_causes.py`: what strangers are told), then `tasks.py`. `log.py`: form and pace of lines (`LinePace`),
`log_level.py`: levels for a time, `secrets.py`: what is hidden. Turns: `loop_budget.py`, `task_turns.py`, `lanes.py`.
`threads.py`: calls that block; `files.py`: files with a bound. `process_memory.py`: memory by the kernel. `native.py`:
the extension, and the texts if it does not fit. `registry.py`, `key_members.py`, `addresses.py`: what their
names say; `instrument.py` and `counters.py`: metrics, declared where they are counted; `version.py`.
"""
