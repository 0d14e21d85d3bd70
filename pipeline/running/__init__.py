"""Jobs as they run.

    session    how Spark is set up
    duck       DuckDB beside Spark, where everything is on one machine
    progress   how far a long step is
    chain      several jobs
    stopping   how a stream ends
    pace       what follows from the batches of a stream is made anew now and then

Rule: nothing else touches the Spark context.
"""
