"""Where tables are kept, on whatever file system Spark has, with one writer at a time.

    protocol          what a store is
    sinks             the store that is asked for; reads and replaces tables
    delta, parquet    the two there are
    lease             the only one who writes: on a disk by a lock, elsewhere by a lease
    hadoop            small files on Spark's file systems
    history, drift    what earlier runs said; the same as metrics

Rule: a writer holds the lock or the lease of the whole place while it writes.
"""
