"""The report: one HTML page that needs no network, no server and, for its numbers, no scripts.

    gather*          the tables, aggregated in Spark to a few thousand rows: the numbers of a new column begin here
    timeline, clock  what is in use when, and how long a request waited (Spark); the bins of time
    facts            what was gathered: small data frames and figures
    charts, colours  data frames in, Vega-Lite specifications out
    past, future     sections: what happened; what other limits would have done, and what to set
    slowed, earlier  sections: who was slowed, and other marks; what became of earlier advice
    words            the summary in sentences
    parts            what a section is made of, and how rows become a table
    page, write      the sections as HTML, with filters; into a file, in the order of `write.sections_of`
    units            numbers and foreign texts as people read them

Rule: whatever comes from events is foreign text; it reaches the page only through the template's escaping or as JSON
in which no `<` is left.
"""
