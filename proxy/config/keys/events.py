"""The event log: one event for each topic list, for the pipeline."""

from proxy.config.keys.key import Key, choice, text, whole
from proxy.config.keys.units import HOUR_MILLIS, MILLIS

EVENTS = "Event log"
MIB = "MiB"


class EventKeys:
    """The event log."""

    event_log_directory = Key(
        "eventLogDirectory", "", text(), section=EVENTS,
        doc="Directory for event files (compressed JSON lines). Empty: no files.",
    )  # fmt: skip
    event_log_topic = Key(
        "eventLogTopic", "", text(), section=EVENTS,
        doc="Pulsar topic for events, as `persistent://tenant/namespace/topic`; needs the extra `events`. Its "
        "namespace must keep messages (`pulsar-proxy-pipeline init-topic`), or they are lost unread. Empty: no topic.",
    )  # fmt: skip
    event_log_topic_service_url = Key(
        "eventLogTopicServiceURL", "", text(), section=EVENTS,
        doc="Cluster of `eventLogTopic`. Empty: the brokers of this proxy, with its own credentials.",
    )  # fmt: skip
    event_log_topic_web_service_url = Key(
        "eventLogTopicWebServiceURL", "", text(), section=EVENTS,
        doc="Admin service of that cluster, asked whether the namespace keeps messages. Empty: `brokerWebServiceURL`; "
        "without either nobody is asked, and a warning says so.",
    )  # fmt: skip
    event_log_topic_authentication_plugin = Key(
        "eventLogTopicAuthenticationPlugin", "", text(), section=EVENTS,
        doc="Credentials for `eventLogTopic`, as in `brokerClientAuthenticationPlugin`. Empty: the proxy's own, at its "
        "own brokers. Needed if the proxy's role is in their `proxyRoles`: such a role may not write itself.",
    )  # fmt: skip
    event_log_topic_authentication_parameters = Key(
        "eventLogTopicAuthenticationParameters", "", text(), section=EVENTS, secret=True,
        doc="Their parameters, as in `brokerClientAuthenticationParameters`.",
    )  # fmt: skip
    event_log_proxy_id = Key(
        "eventLogProxyId", "", text(), section=EVENTS, doc="Name of this proxy in its events. Empty: the host name.",
    )  # fmt: skip
    event_log_identities = Key(
        "eventLogIdentities", "hashed", choice("hashed", "plain"), section=EVENTS,
        doc="How principals and client addresses appear in events: `hashed` with `eventLogSalt`, or `plain`.",
    )  # fmt: skip
    event_log_salt = Key(
        "eventLogSalt", "", text(), section=EVENTS, secret=True,
        doc="Key of those hashes. The same for all proxies of a fleet, so that a principal is the same in all their "
        "events. Empty: random at each start.",
    )  # fmt: skip
    event_log_buffer_mb = Key(
        "eventLogBufferMB", 8, whole(1, 1024), section=EVENTS, unit=MIB,
        doc="Memory for events that a sink has not taken yet, for each sink. What does not fit is dropped and counted.",
    )  # fmt: skip
    event_log_flush_millis = Key(
        "eventLogFlushMillis", 1000, whole(10, 60_000), section=EVENTS, unit=MILLIS,
        doc="Longest time that an event waits for others before it is written: what a crash may cost.",
    )  # fmt: skip
    event_log_file_max_size_mb = Key(
        "eventLogFileMaxSizeMB", 64, whole(1, 1_048_576), section=EVENTS, unit=MIB,
        doc="A larger file is finished and the next begun (compressed size).",
    )  # fmt: skip
    event_log_file_max_age_millis = Key(
        "eventLogFileMaxAgeMillis", 60_000, whole(1000, 24 * HOUR_MILLIS), section=EVENTS, unit=MILLIS,
        doc="An older file is finished and the next begun; only finished files are read by the pipeline.",
    )  # fmt: skip
    event_log_files_max_total_mb = Key(
        "eventLogFilesMaxTotalMB", 1024, whole(0, 1_073_741_824), section=EVENTS, unit=MIB,
        doc="The oldest finished event files in the directory go when together they are larger, those of other proxies "
        "included. 0: nobody deletes them.",
    )  # fmt: skip
