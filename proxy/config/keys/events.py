"""Keys of the event log: an event for each topic list, for the pipeline."""

from proxy.config.keys.key import Key, choice, secret_text, text, whole
from proxy.config.keys.units import MIB

LEAST_SALT_BYTES = 16


class EventKeys:
    """Keys of the event log."""

    section = "Event log"

    event_log_directory = Key(
        "eventLogDirectory", "", text(),
        doc="Directory for event files (compressed JSON lines). Empty: no files.",
    )  # fmt: skip
    event_log_topic = Key(
        "eventLogTopic", "", text(),
        doc="Pulsar topic for events, as `persistent://tenant/namespace/topic`; requires the extra `events`. The "
        "namespace must retain messages (`pulsar-admin namespaces set-retention`), or unread events are lost. Empty: "
        "no topic.",
    )  # fmt: skip
    event_log_topic_service_url = Key(
        "eventLogTopicServiceURL", "", text(),
        doc="Cluster of `eventLogTopic`. Empty: the brokers of this proxy, with the proxy's own credentials; those in "
        "`brokerWebServiceURL` are asked whether the namespace retains messages. Another cluster is not asked.",
    )  # fmt: skip
    event_log_topic_authentication_plugin = Key(
        "eventLogTopicAuthenticationPlugin", "", text(),
        doc="Credentials for `eventLogTopic`, as in `brokerClientAuthenticationPlugin`. Empty: the proxy's own "
        "credentials, if the topic is on its own brokers. Set this if the proxy's role is in the brokers' "
        "`proxyRoles`: such a role may not write.",
    )  # fmt: skip
    event_log_topic_authentication_parameters = Key(
        "eventLogTopicAuthenticationParameters", "", text(), secret=True,
        doc="Parameters of that plugin, as in `brokerClientAuthenticationParameters`.",
    )  # fmt: skip
    event_log_proxy_id = Key(
        "eventLogProxyId", "", text(), doc="Name of this proxy in its events. Empty: the host name.",
    )  # fmt: skip
    event_log_identities = Key(
        "eventLogIdentities", "hashed", choice("hashed", "plain"),
        doc="Form of principals and client addresses in events: `hashed` with `eventLogSalt`, or `plain`.",
    )  # fmt: skip
    event_log_salt = Key(
        "eventLogSalt", "", secret_text(LEAST_SALT_BYTES), secret=True,
        doc="Key of those hashes. Set the same value on all proxies of a fleet, so that a principal has the same "
        "hash in all their events. At least 16 bytes, as of `openssl rand -hex 16`: a short salt can be found by "
        "trying, and then the addresses behind the hashes. Empty: a random key at each start.",
    )  # fmt: skip
    event_log_buffer_mb = Key(
        "eventLogBufferMB", 8, whole(1, 1024), unit=MIB,
        doc="Memory for events that a sink has not written yet, for each sink. Events that do not fit are dropped "
        "and counted.",
    )  # fmt: skip
    event_log_files_max_total_mb = Key(
        "eventLogFilesMaxTotalMB", 1024, whole(0, 1_073_741_824), unit=MIB,
        doc="Total size of finished event files in the directory, those of other proxies included, above which the "
        "oldest are deleted. 0: none are deleted.",
    )  # fmt: skip
