"""Jobs as they run.

    session    how Spark is set up
    chain      several jobs
    stopping   how a stream ends

Rule: nothing else touches the Spark context.
"""
