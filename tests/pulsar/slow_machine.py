"""A machine that is too slow for Spark, which gives a Python process ten seconds to start, whatever there is to do.

Then a stream ends as if killed, and its user starts it again.
"""


def was_too_slow(said: str) -> bool:
    """Tell whether a stream that ended with these words ended for that reason."""
    return "Python worker failed to connect back" in said
