"""Tables of the theme `slowed`: which producers overload control slowed.

Rule: these come from the events of decisions, which are of the whole proxy: they name topics, and no principals.
"""

from typing import Final

from pipeline.core.tables.table import Column, Table
from pipeline.core.tables.usage import WHERE

SLOWED: Final = Table(
    "slowed",
    "Producers that were slowed in one hour: a row for each topic whose rate was limited, and one for the connections"
    " that were not read. A topic counts as slowed until its next event, at most to the last event of that start of the"
    " proxy on that day and the next. A row with the reason `forgotten` counts topics that the throttle forgot.",
    ("hour_start", "cluster", "proxy_id", "throttle", "observed", "topic", "reason"),
    (
        Column("date", "date", "", "Day of the hour, UTC."),
        Column("hour_start", "timestamp", "UTC", "When the hour begins."),
        *WHERE,
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
            " several do; `recovery` while nothing does any more and the rate climbs back.",
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
