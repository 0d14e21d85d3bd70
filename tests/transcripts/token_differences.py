"""The table of differences for scripts with authentication; `differences` says how it is read."""

from typing import Final

from tests.transcripts.rules import Reason, Rule

_FLAGS: Final = "client, 1, feature_flags.supports"

TOKEN_REASONS: Final = (
    Reason(
        "Its own name, and one for all clients",
        "Connections for requests are shared by the clients of one role, so none of their names would be true.",
        (
            Rule(
                26,
                "…",
                "client, 1, server_version",
                "Pulsar Server<version>",
                "Pulsar Server-pulsar-proxy-sidecar-<version>",
            ),
            Rule(23, "…", "broker 1, 1, proxy_version", "<version>", "pulsar-proxy-sidecar-<version>"),
            Rule(15, "…", "broker 1, 1, client_version", "transcript", "pulsar-proxy-sidecar-<version>"),
        ),
    ),
    Reason(
        "Features of newer releases",
        "As without authentication.",
        (Rule(18, "…", "client, 1, feature_flags.supports_topic_watcher_reconcile", None, "false"),),
    ),
    Reason(
        "A relayed connection promises what its broker does",
        "As without authentication.",
        (
            Rule(8, "…", f"{_FLAGS}_get_partitioned_metadata_without_auto_creation", "true", None),
            Rule(8, "…", f"{_FLAGS}_repl_dedup_by_lid_and_eid", "true", None),
            Rule(8, "…", f"{_FLAGS}_topic_watchers", "false", None),
        ),
    ),
    Reason(
        "Fields left out that say nothing",
        "As without authentication: a reader takes the same value.",
        (
            Rule(8, "…", "broker 1, 1, feature_flags", "{}", None),
            Rule(3, "…", "broker 1, 2, metadata_auto_creation_enabled", "true", None),
            Rule(3, "…", "broker 1, 2, mode", "PERSISTENT", None),
            Rule(3, "… topics", "client, 2, filtered", "false", None),
            Rule(3, "… topics", "client, 2, changed", "true", None),
        ),
    ),
    Reason(
        "Texts that say what is wrong",
        "The code is the same; the text says what is amiss with the credentials and shows no part of them.",
        (
            Rule(
                3,
                "… a proxy_version",
                "client, 1, message",
                "Must not provide proxyVersion",
                "must not provide proxy_version",
            ),
            Rule(12, "…", "client, 1, message", "Failed to authenticate", "failed to authenticate: …"),
        ),
    ),
    Reason(
        "A method without a provider is refused",
        "The Java proxy gives such a client the anonymous role, so a misspelt method is never noticed; "
        "anonymousUserRoleForUnknownMethods=true does so here.",
        (
            Rule(1, "… a method without a provider", "client, 1", "CONNECTED …", "ERROR {…AuthenticationError…}"),
            Rule(1, "… a method without a provider", "client, 2", "PONG", "END"),
        ),
    ),
    Reason(
        "A token without a subject proves no role",
        "The Java proxy takes it and lets the client in without a role.",
        (
            Rule(1, "token: a token without a subject", "client, 1", "CONNECTED …", "ERROR {…AuthenticationError…}"),
            Rule(1, "token: a token without a subject", "client, 2", "PONG", "END"),
        ),
    ),
)
