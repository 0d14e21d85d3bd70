"""The part `kernel`: the replay with all rules beside the least that a replay can be, one core, no engine."""
