"""Tables of the theme `slowed`: which producers overload control slowed, and what other marks would have done.

Rule: these come from the events of decisions, which are of the whole proxy: they name topics, and no principals.
"""

from typing import Final

from pipeline.core.tables.table import Column, Table

SLOWED: Final = Table(
    "slowed",
    "Producers that were slowed in one hour: a row for each topic whose rate was limited, and one for the connections"
    " that were not read. A topic counts as slowed until its next event, at most to the last event of that start of the"
    " proxy. A row with the reason `forgotten` counts topics that the throttle forgot.",
    ("hour_start", "proxy_id", "throttle", "observed", "topic", "reason"),
    (
        Column("date", "date", "", "Day of the hour, UTC."),
        Column("hour_start", "timestamp", "UTC", "When the hour begins."),
        Column("proxy_id", "string", "", "The proxy.", True),
        Column("throttle", "string", "", "`threshold`: connections; `adaptive`: a topic."),
        Column("observed", "bool", "", "The proxy only observed (ObserveOnly): this would have happened."),
        Column("tenant", "string", "", "Tenant of the topic; null for connections.", True),
        Column("namespace", "string", "", "`tenant/namespace` of the topic; null for connections.", True),
        Column("topic", "string", "", "The topic; null for connections.", True),
        Column(
            "reason",
            "string",
            "",
            "What presses: `memory` of the proxy, `brokers` for their memory, `backlog` of the topic, with `and` if"
            " several do; `recovery` while nothing does any more and the rate climbs back. Of events before version 3:"
            " `memory`, or `backlog` for more pressure than the recorded memory makes under the marks that `usage` was"
            " told.",
        ),
        Column("seconds", "double", "s", "How long it was slowed; of connections the sum over all of them."),
        Column("decisions", "int64", "", "Events in that hour that began this, or changed it."),
        Column("most_connections", "int64", "", "Most connections that were paused at a time; null for topics.", True),
        Column("natural_bytes_per_second", "double", "bytes/s", "Natural rate, mean of that time.", True),
        Column("allowed_bytes_per_second", "double", "bytes/s", "Rate that was allowed, mean of that time.", True),
        Column("natural_messages_per_second", "double", "messages/s", "The same in messages.", True),
        Column("allowed_messages_per_second", "double", "messages/s", "The same in messages.", True),
        Column("max_pressure_permille", "int64", "1/1000", "Highest pressure; null for connections.", True),
        Column("max_ratio_permille", "int64", "1/1000", "Most memory in use, as a part of its limit.", True),
        Column("forgotten_topics", "int64", "", "Topics that were forgotten, because nobody sent to them.", True),
    ),
    ("date",),
)

WHATIF_MARKS: Final = Table(
    "whatif_marks",
    "Pressure and allowed rate in one minute of one proxy under one pair of marks, replayed over the memory that was"
    " recorded. Minutes in which memory was not known and nobody would have been slowed have no row.",
    ("high", "low", "proxy_id", "minute"),
    (
        Column("date", "date", "", "Day of the minute, UTC."),
        Column("minute", "timestamp", "UTC", "When the minute begins."),
        Column("proxy_id", "string", "", "The proxy.", True),
        Column("high", "double", "", "High mark, as a fraction of the limit."),
        Column("low", "double", "", "Low mark."),
        Column("seconds", "int64", "s", "Seconds that were replayed."),
        Column("pressed_seconds", "int64", "s", "Those with pressure."),
        Column("paused_seconds", "int64", "s", "Those in which connections would have been paused."),
        Column("ratio", "double", "", "Memory in use as a part of its limit, mean where known.", True),
        Column("pressure", "double", "", "Pressure from 0 to 1, mean."),
        Column("max_pressure", "double", "", "Highest pressure."),
        Column("allowed_share", "double", "", "Part of its natural rate that a topic may send, mean."),
        Column("least_allowed_share", "double", "", "The smallest."),
    ),
    ("date",),
)
