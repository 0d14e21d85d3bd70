"""Every place where ours is otherwise than the Java proxy 4.0.8, each with the reason why ours is wanted.

`…` stands for any text, `<last word>` for the last word of the script's name. docs/reference/java-differences.md is
generated from this table.
"""

from typing import Final

from tests.transcripts.rules import Reason, Rule

_SMALL: Final = "the field that the Java proxy writes has the value that a reader takes if it is left out"
_FLAGS: Final = "client, 1, feature_flags.supports"

REASONS: Final = (
    Reason(
        "Its own name",
        "Logs and statistics of clients and brokers shall say which proxy they speak with.",
        (
            Rule(
                238,
                "…",
                "client, 1, server_version",
                "Pulsar Server<version>",
                "Pulsar Server-pulsar-proxy-sidecar-<version>",
            ),
            Rule(25, "…", "…broker 1, 1, proxy_version", "<version>", "pulsar-proxy-sidecar-<version>"),
            Rule(175, "…", "…broker 1, 1, client_version", "Pulsar-Java-v<version>", "pulsar-proxy-sidecar-<version>"),
        ),
    ),
    Reason(
        "Features of newer releases",
        "A lookup connection promises no reconciling watchers (Pulsar 4.2), and what a client of 5.0 says of scalable "
        "topics reaches the broker; the Java proxy 4.0.8 does not know these fields.",
        (
            Rule(221, "…", "client, 1, feature_flags.supports_topic_watcher_reconcile", None, "false"),
            Rule(
                1, "relayed: SCALABLE_TOPIC_LOOKUP", "broker 1, 1, feature_flags.supports_scalable_topics", None, "true"
            ),
        ),
    ),
    Reason(
        "A relayed connection promises what its broker does",
        "The Java proxy promises for every broker that replicated messages are deduplicated by their place and that "
        "partitions can be asked for without creating them, and passes on of the broker's features only its watchers.",
        (
            Rule(16, "…", f"{_FLAGS}_get_partitioned_metadata_without_auto_creation", "true", None),
            Rule(16, "…", f"{_FLAGS}_repl_dedup_by_lid_and_eid", "true", None),
            Rule(16, "…", f"{_FLAGS}_topic_watchers", "false", None),
            Rule(1, "direct: a broker with all features", f"{_FLAGS}_auth_refresh", None, "true"),
            Rule(1, "direct: a broker with all features", f"{_FLAGS}_broker_entry_metadata", None, "true"),
            Rule(1, "direct: a broker with all features", f"{_FLAGS}_partial_producer", None, "true"),
        ),
    ),
    Reason(
        "Fields left out that say nothing",
        f"No difference to a reader: {_SMALL}.",
        (
            Rule(200, "…", "…broker 1, 1, auth_data", "", None),
            Rule(200, "…", "…broker 1, 1, auth_method_name", "none", None),
            Rule(24, "…", "…broker 1, 1, feature_flags", "{}", None),
            Rule(30, "…", "broker 1, 2, metadata_auto_creation_enabled", "true", None),
            Rule(32, "…", "broker 1, 2, mode", "PERSISTENT", None),
            Rule(5, "topics: …", "client, 2, filtered", "false", None),
            Rule(6, "topics: …", "client, 2, changed", "true", None),
        ),
    ),
    Reason(
        "All that a client asked for reaches the broker",
        "The Java proxy drops the listener's name and the properties of a lookup and the properties of a topic "
        "list, and lets a broker create a topic although the client said not to.",
        (
            Rule(1, "lookup: listener name", "broker 1, 2, advertised_listener_name", None, "external"),
            Rule(2, "… properties", "broker 1, 2, properties", None, '[{"key": "key", "value": "value"}]'),
            Rule(1, "partitions: without creation", "broker 1, 2, metadata_auto_creation_enabled", "true", "false"),
        ),
    ),
    Reason(
        "Texts that say what is wrong",
        "The code is the same; the text gives what was got, what was expected and the key to change, and no address"
        " or class of the proxy's inside.",
        (
            Rule(
                3,
                "… proxy_version…",
                "client, 1, message",
                "Must not provide proxyVersion",
                "must not provide proxy_version",
            ),
            Rule(
                7,
                "direct: …",
                "client, 1, message",
                "Target broker cannot be validated.",
                "the target broker is not available, look the topic up again",
            ),
            Rule(
                1,
                "lookup: redirected in a circle",
                "client, 2, message",
                "Reached max number of redirections",
                "reached max number of redirections (10)",
            ),
            Rule(
                5,
                "…",
                "client, 2, message",
                "org.apache.pulsar.client.api.PulsarClientException: java.util…",
                "cannot connect to broker <nobody>: connection refused",
            ),
            Rule(
                2,
                "lookup: redirected …",
                "client, 2, message",
                "Illegal character in …",
                "the broker redirected to '…', expected pulsar://",
            ),
            Rule(
                4,
                "… the broker leaves before CONNECTED",
                "client, 2, message",
                "org.apache.pulsar.client.api.PulsarClientException: Connection already closed",
                "broker_closed: the connection to the broker ended",
            ),
            Rule(
                3,
                "… the broker leaves instead of answering",
                "client, 2, message",
                "Disconnected from server at <broker>",
                "broker_closed: the connection to the broker ended",
            ),
            Rule(
                79,
                "…",
                "client, 2, message",
                '{"errorMsg":"because","reqId":<drawn>, "remote":"…", "local":"<some address>"}',
                "because",
            ),
        ),
    ),
    Reason(
        "The broker's own code",
        "The Java proxy turns most codes into ServiceNotReady, upon which a Java client closes its connection and "
        "tries again what cannot succeed; a client shall learn what the broker said.",
        (Rule(69, "… with …", "client, 2, error", "ServiceNotReady", "<last word>"),),
    ),
    Reason(
        "An answer of the right kind",
        "For partition metadata that failed the Java proxy 4.0.8 answers with a LOOKUP_RESPONSE, for which no "
        "request is waiting in some clients; newer releases have mended that.",
        (
            Rule(
                26,
                "partitions fail with …",
                "client, 2",
                "LOOKUP_RESPONSE …",
                'PARTITIONED_METADATA_RESPONSE {…"Failed", "error": "<last word>", "message": "because"}',
            ),
            Rule(
                1,
                "PARTITIONED_METADATA: the broker leaves instead of answering",
                "client, 2",
                "LOOKUP_RESPONSE …",
                'PARTITIONED_METADATA_RESPONSE {"request_id": 1, "response": "Failed", "error": "ServiceNotReady", …',
            ),
        ),
    ),
    Reason(
        "An answer instead of silence",
        "When the broker refuses the proxy or asks it for credentials, a client of the Java proxy waits until it "
        "gives up by itself.",
        (
            Rule(
                4,
                "…: the broker refuses the proxy",
                "client, 2",
                "SILENCE",
                '…"error": "AuthorizationError", "message": "not you"}',
            ),
            Rule(
                1,
                "direct: the broker asks for credentials",
                "client, 1",
                "SILENCE",
                'ERROR {"request_id": -1, "error": "AuthenticationError", …',
            ),
            Rule(1, "direct: the broker asks for credentials", "broker 1, 2", "AUTH_RESPONSE …", None),
        ),
    ),
    Reason(
        "A word before the end",
        "The Java proxy closes without one when the broker cannot be reached or refuses; an ERROR says which broker"
        " and why, and the broker's own code tells a client that may not come in from a broker that is not ready.",
        (
            Rule(
                5,
                "direct: the broker refuses with …",
                "client, 1",
                "END",
                'ERROR {"request_id": -1, "error": "<last word>", "message": "not you"}',
            ),
            Rule(
                6, "direct: …", "client, 1", "END", 'ERROR {…"ServiceNotReady", "message": "the target broker is not …'
            ),
            Rule(9, "direct: …", "client, 2", None, "END"),
        ),
    ),
    Reason(
        "A target that is no address is no matter of credentials",
        "The Java proxy says AuthenticationError; a client that believes it asks for new credentials.",
        (
            Rule(4, "direct: …", "client, 1, error", "AuthenticationError", "ServiceNotReady"),
            Rule(4, "direct: …", "client, 1, message", "Failed to authenticate", "the target broker is not available…"),
        ),
    ),
    Reason(
        "More ways to name a broker",
        "A target with the scheme that a lookup gave, as some clients send it, and an empty one, by which clients "
        "of 5.0 ask for any broker.",
        (
            Rule(
                1,
                "direct: with the scheme",
                "client, 1",
                'ERROR {…"Target broker cannot be validated."}',
                "CONNECTED …",
            ),
            Rule(1, "direct: an empty target", "client, 1", 'ERROR {…"Failed to authenticate"}', "CONNECTED …"),
            Rule(2, "direct: …", "client, 2", "END", "PONG"),
            Rule(2, "direct: …", "broker 1, 1", None, "CONNECT …"),
            Rule(2, "direct: …", "broker 1, 2", None, "PING"),
        ),
    ),
    Reason(
        "Commands that have no place on a lookup connection",
        "The Java proxy closes the connection, and all other requests on it are lost; an ERROR with the request's "
        "id says what is not served, and the connection lives.",
        (
            Rule(
                22,
                "unsupported: …",
                "client, 2",
                "END",
                'ERROR {…"NotAllowedError", "message": "command … is not served on a proxy\'s lookup connection"}',
            ),
            Rule(23, "unsupported: …", "client, 3", None, "PONG"),
            Rule(
                1,
                "error from a client",
                "client, 2",
                "END",
                'ERROR {…"command ERROR is not served on a proxy\'s lookup connection"}',
            ),
        ),
    ),
    Reason(
        "A schema can be registered",
        "GET_OR_CREATE_SCHEMA is forwarded; the Java proxy closes the connection.",
        (
            Rule(1, "unsupported: GET_OR_CREATE_SCHEMA", "client, 2", "END", "GET_OR_CREATE_SCHEMA_RESPONSE …"),
            Rule(1, "unsupported: GET_OR_CREATE_SCHEMA", "broker 1, 1", None, "CONNECT …"),
            Rule(1, "unsupported: GET_OR_CREATE_SCHEMA", "broker 1, 2", None, "GET_OR_CREATE_SCHEMA …"),
        ),
    ),
    Reason(
        "Names that make a broker close the connection stay here",
        "Connections to brokers are shared by clients: what a broker answers by closing would cost others their "
        "question.",
        (
            Rule(2, "… is no …", "client, 2", "…_RESPONSE …", 'ERROR {"request_id": 1, "error": "InvalidTopicName", …'),
            Rule(
                1,
                "schema: a version that is too short",
                "client, 2",
                "GET_SCHEMA_RESPONSE …",
                'ERROR {"request_id": 1, "error": "MetadataError", …',
            ),
            Rule(3, "…", "broker 1, 1", "CONNECT …", None),
            Rule(3, "…", "broker 1, 2", "GET_…", None),
        ),
    ),
    Reason(
        "A question that was lost with its connection is asked once more",
        "The connection may have been an old one of the pool; a client of the Java proxy gets ServiceNotReady at "
        "once and closes its own connection.",
        (
            Rule(8, "… the broker leaves …", "broker 2, 1", None, "CONNECT …"),
            Rule(1, "lookup: redirected to nobody", "broker 1, 3", None, "LOOKUP …"),
            Rule(4, "… the broker leaves instead of answering", "broker 2, 2", None, "…"),
        ),
    ),
    Reason(
        "Nothing is served before CONNECT",
        "Whoever sends anything else first speaks another protocol or looks for weak points.",
        (Rule(1, "ping before connect", "client, 1", "PONG", "END"),),
    ),
    Reason(
        "Credentials that nobody asked for",
        "Without authentication there is nothing to check them against; the Java proxy closes the connection.",
        (Rule(1, "auth response that nobody asked for", "client, 2", "ERROR …", "PONG"),),
    ),
)
