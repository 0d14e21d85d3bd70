"""Overload control: signals of memory and backlog, and the two throttles that slow producers down before it is used up.

Start reading with `control.py` (the shell: clock, exceptions, application) and `samples.py` (what goes in, what comes
out). The cores have no I/O and no clock: `memory_use.py` and `broker_statistics.py` (signals), `threshold.py` (which
connections are not read) and `adaptive.py` (the rate of each topic). Operators read docs/overload.md.
"""
