"""What the tests notice: small changes of the product (mutants), each run against the tests that cover its line.

`make mutants` goes on where it stopped. `chosen.json` holds the mutants, `baseline.json` what became of those of them
that were there before the tests were changed (stages `unit` and `integration` of then), `now.json` what becomes of them
since. `python -m tests.mutants compare` says how many of the killed still die. After a change of tests: remove
`now.json`, run `python -m tests.mutants cover`; of the product: `choose`, which draws for mutants whose place is gone.
"""
