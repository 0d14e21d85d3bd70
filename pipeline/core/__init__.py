"""Knowledge that jobs, stores and the page share: what tables are, what options mean, and how advice is chosen.

    tables, schema, periods   tables as they are declared; their Spark schemas; which events
    options, paths, errors    what all jobs are told, where that is, and what a job ends with
    model, buckets            what is replayed and what comes out; waits by length
    calibration               how far the replay is off, and what of that is trusted
    choice, bounds            the smallest limits that hold a target; how far they may go from what was seen
    advice_text, held         the lines of proxy.conf; whether an advice of before held

Rule: nothing here opens a session or reads a table.
"""
