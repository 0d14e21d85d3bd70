"""The report: one HTML page that needs no network, no server and no scripts.

    gather            the tables, aggregated in Spark to a few thousand rows: the numbers of a new column begin here
    timeline, clock   what is in use when (Spark); the bins of time
    facts             what was gathered: rows, small data frames and figures
    rankings          who comes first, and whether he stands out; as JSON
    charts            data frames in, pictures out
    summary, advice, happened, slowed   the sections: pure functions from facts
    parts             what a section is made of, and how rows become a table
    page, write       the sections as HTML; into a file, in the order of `write.sections_of`
    units             numbers and foreign texts as people read them

Rule: whatever comes from events is foreign text; it reaches the page only through the template's escaping.
"""
