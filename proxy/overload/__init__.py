"""Overload control: signals of memory and backlog, and the two throttles that slow producers down before it is used up.

Start with `signal_watch.py` (the table of signals, and what of them is known) and `control.py` (the shell: clock,
exceptions, application). `samples.py` has what goes in: ratios, the marks that make a pressure of them, and what of
memory counts. The cores have no I/O and no clock: `threshold.py` (which connections are not read) and `adaptive.py`
(the rate of each topic; its arithmetic is in `rate_rules.py`, the slots that it limits in `rated_slots.py`).
`machine_memory.py`, `broker_questions.py` and `relay_weights.py` read what these need, `slices.py` spreads the work.
`pauses.py` finds the connections that produce and pauses them (it does not know their topics), `topic_choice.py` says
which topics the adaptive throttle spares. `report.py` writes log lines and events, `counters.py` counts, `bounds.py` is
for the memory budget. The keys are read in `settings.py`. Operators read docs/overload.md.
May import: `core` to `brokers`, `requests`, `relay`. `proxy/app/overload.py` builds and ends all this.
"""
