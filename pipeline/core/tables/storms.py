"""Tables of the theme `storms`: arrivals a second, and the bursts among them."""

from pipeline.core.tables.table import Column, Table

CLUSTER = Column("cluster", "string", "", "The cluster; null if its proxies do not say.", True)

ARRIVALS = Table(
    "arrivals",
    "What arrived in one second at one proxy. Seconds in which nothing did have no row; a fleet is the sum.",
    ("second", "cluster", "proxy_id"),
    (
        Column("date", "date", "", "Day of the second, UTC."),
        CLUSTER,
        Column("second", "timestamp", "UTC", "When the second begins."),
        Column("proxy_id", "string", "", "The proxy.", True),
        Column("requests", "int64", "", "Topic lists that were asked for."),
        Column("watch_frames", "int64", "", "First lists and updates for topic watchers."),
        Column("refused", "int64", "", "Topic lists that the limiter refused, by the second of their arrival."),
        Column("max_heap_used_bytes", "int64", "bytes", "Most heap memory in use on an arrival."),
        Column("max_direct_used_bytes", "int64", "bytes", "Most direct memory in use on an arrival."),
        Column("max_heap_queue_len", "int32", "", "Longest queue for heap memory on an arrival."),
        Column("max_direct_queue_len", "int32", "", "Longest queue for direct memory on an arrival."),
        Column("heap_limit_bytes", "int64", "bytes", "Limit in force; 0 is none."),
        Column("direct_limit_bytes", "int64", "bytes", "Limit in force; 0 is none."),
    ),
    ("date",),
)

STORMS = Table(
    "storms",
    "Bursts of topic lists: seconds in which a cluster's proxies had far more arrivals than usual, and what became of"
    " them.",
    ("date", "cluster", "storm"),
    (
        Column("date", "date", "", "Day of the first arrival, UTC."),
        CLUSTER,
        Column("storm", "int32", "", "Number of the day, from 1, in the order of time."),
        Column("begin", "timestamp", "UTC", "First arrival."),
        Column("end", "timestamp", "UTC", "Last arrival."),
        Column("arrival_seconds", "double", "s", "From the first arrival to the last."),
        Column("served_seconds", "double", "s", "From the first arrival until the last of its requests had ended."),
        Column("usual_rate", "double", "1/s", "Median of arrivals over all seconds of the seven days to that day."),
        Column("peak_rate", "int64", "1/s", "Arrivals in its busiest second, over all proxies of the cluster."),
        Column("requests", "int64", "", "Topic lists that were asked for."),
        Column("answered", "int64", "", "Those that ended well."),
        Column("refused", "int64", "", "Those that the limiter refused."),
        Column("cancelled", "int64", "", "Those whose client left first."),
        Column("questions", "int64", "", "Groups of them: questions to brokers at most."),
        Column("proxies", "int64", "", "Proxies that saw it."),
        Column("clients", "int64", "", "Connections that asked."),
        Column("principals", "int64", "", "Principals that asked."),
        Column("namespaces", "int64", "", "Namespaces that were asked for."),
        Column("max_heap_used_bytes", "int64", "bytes", "Most heap memory of one proxy in use on an arrival."),
        Column("max_direct_used_bytes", "int64", "bytes", "Most direct memory of one proxy in use on an arrival."),
        Column("max_heap_queue_len", "int32", "", "Longest queue of one proxy for heap memory on an arrival."),
        Column("max_direct_queue_len", "int32", "", "Longest queue of one proxy for direct memory on an arrival."),
        Column("max_memory_wait_us", "int64", "us", "Longest wait for heap, its growth and direct memory together."),
    ),
    ("date",),
)

STORM_MEMBERS = Table(
    "storm_members",
    "Who was in a storm: those with most requests of each dimension.",
    ("date", "cluster", "storm", "dimension", "rank"),
    (
        Column("date", "date", "", "Day of the storm, UTC."),
        CLUSTER,
        Column("storm", "int32", "", "The storm of that day."),
        Column("dimension", "string", "", "tenant, namespace, principal, client_version, proxy_id or broker."),
        Column("rank", "int32", "", "1 has most requests; equal ones in the order of their names."),
        Column("name", "string", "", "Which one; null if unknown.", True),
        Column("requests", "int64", "", "Topic lists that it asked for in the storm."),
        Column("refused", "int64", "", "Those that the limiter refused."),
    ),
    ("date",),
)
