"""Overload under other marks: the rules of the proxy's throttles, and their replay over recorded memory.

    marks    the rules, a few lines each, and the marks as options; no pyspark
    replay   recorded samples to the table `whatif_marks`

Rule: the pipeline imports nothing of the proxy, so the rules are written twice. A test runs both on the same samples.
"""
