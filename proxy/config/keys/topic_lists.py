"""Keys of topic lists and their memory (PIP-442)."""

from proxy.config.keys.key import Key, boolean, choice, text, whole, whole_or_blank
from proxy.config.keys.units import BYTES, HOUR_MILLIS, LARGEST, MILLIS


class TopicListKeys:
    """Keys of topic lists and their memory (PIP-442)."""

    section = "Topic lists (PIP-442)"

    max_topic_list_in_flight_heap_mem_size_mb = Key(
        "maxTopicListInFlightHeapMemSizeMB", 100, whole(0, 1_048_576), since="pip-442",
        unit="MiB", dynamic=True,
        doc="Memory for topic lists between the broker's answer and its encoding. 0: no limit, so the proxy's memory "
        "is not bounded.",
    )  # fmt: skip
    max_topic_list_in_flight_direct_mem_size_mb = Key(
        "maxTopicListInFlightDirectMemSizeMB", 100, whole(0, 1_048_576), since="pip-442",
        unit="MiB", dynamic=True,
        doc="Memory for encoded topic lists that clients have not received yet. Beside it, an eighth as much is for "
        "CONNECT commands above 4096 bytes until they are served, in turns by address, and as much again for "
        "credentials above 4096 bytes that are kept to be forwarded, equal ones once. 0: no limit, so the proxy's "
        "memory is not bounded.",
    )  # fmt: skip
    max_topic_list_in_flight_heap_mem_size_permits_acquire_timeout_millis = Key(
        "maxTopicListInFlightHeapMemSizePermitsAcquireTimeoutMillis", 25_000, whole(0, HOUR_MILLIS),
        since="pip-442", unit=MILLIS, dynamic=True,
        doc="Longest time that a request waits for heap memory before it fails with TooManyRequests.",
    )  # fmt: skip
    max_topic_list_in_flight_direct_mem_size_permits_acquire_timeout_millis = Key(
        "maxTopicListInFlightDirectMemSizePermitsAcquireTimeoutMillis", 25_000, whole(0, HOUR_MILLIS),
        since="pip-442", unit=MILLIS, dynamic=True,
        doc="Longest time that an answer waits for direct memory before it fails with TooManyRequests.",
    )  # fmt: skip
    max_topic_list_in_flight_heap_mem_size_permits_acquire_queue_size = Key(
        "maxTopicListInFlightHeapMemSizePermitsAcquireQueueSize", 10_000, whole(0, 10_000_000),
        since="pip-442", unit="requests", dynamic=True,
        doc="Requests that may wait for heap memory; any further request is refused at once. 0: no limit.",
    )  # fmt: skip
    max_topic_list_in_flight_direct_mem_size_permits_acquire_queue_size = Key(
        "maxTopicListInFlightDirectMemSizePermitsAcquireQueueSize", 10_000, whole(0, 10_000_000),
        since="pip-442", unit="requests", dynamic=True,
        doc="Answers that may wait for direct memory; any further answer is refused at once. 0: no limit.",
    )  # fmt: skip
    topic_list_request_timeout_millis = Key(
        "topicListRequestTimeoutMillis", 28_000, whole(1, HOUR_MILLIS), unit=MILLIS,
        dynamic=True,
        doc="Time limit of a request from its arrival to the first byte of its answer, all waits included; also for "
        "lookups and schemas. A list that has moved to topicListSpillDirectory has no limit. A broker has 30 s to "
        "answer, or this if it is more. Keep it below the clients' 30 s.",
    )  # fmt: skip
    topic_list_max_answer_bytes = Key(
        "topicListMaxAnswerBytes", None, whole_or_blank(1024, LARGEST), unit=BYTES,
        dynamic=True,
        doc="Largest answer of a broker; larger answers are skipped and the request fails. Empty: the smaller of the "
        "two memory limits.",
    )  # fmt: skip
    topic_list_coalescing_enabled = Key(
        "topicListCoalescingEnabled", True, boolean(), dynamic=True,
        doc="Equal requests that wait at the same time share one request to the broker and one encoded answer.",
    )  # fmt: skip
    topic_list_shared_by = Key(
        "topicListSharedBy", "credentials", choice("credentials", "role"), dynamic=True,
        doc="Clients that share a request, and with it an answer, where `forwardAuthorizationCredentials` forwards "
        "their credentials. `credentials`: those that have presented the same. `role`: all of one role; the list is "
        "asked for with the credentials of one of them, so a client whose token the broker would refuse may get it. "
        "`role` assumes that brokers authorize by role alone, by no other claim of a token. Lists over HTTP are never "
        "shared.",
    )  # fmt: skip
    topic_list_fairness = Key(
        "topicListFairness", "fifo", choice("fifo", "connection", "principal", "tenant", "namespace"),
        dynamic=True,
        doc="Kind of key between which memory is shared when requests wait for it: keys take turns by bytes, and "
        "requests of a key are served in order. `fifo`: all requests are served in order; in the share of clients that "
        "have not shown that they read, networks take turns.",
    )  # fmt: skip
    topic_list_max_memory_percent_per_key = Key(
        "topicListMaxMemoryPercentPerKey", 100, whole(1, 100), unit="%", dynamic=True,
        doc="Share of each memory limit that a connection, principal, tenant or namespace (`topicListFairness`) may "
        "use; without effect for `fifo`.",
    )  # fmt: skip
    topic_list_write_stall_timeout_millis = Key(
        "topicListWriteStallTimeoutMillis", 20_000, whole(0, HOUR_MILLIS), unit=MILLIS,
        dynamic=True,
        doc="Time after which a client that receives no byte of its answer is closed. 0: never.",
    )  # fmt: skip
    topic_list_write_min_bytes_per_second = Key(
        "topicListWriteMinBytesPerSecond", 32_768, whole(0, LARGEST), unit="bytes/s",
        dynamic=True,
        doc="A client that receives its answer more slowly than this over 10 s is closed, but only while other "
        "requests wait for its memory; a large request that comes more slowly is refused then. Slower than "
        "128 KiB/s over 2 s: only where slow clients hold more than a quarter of direct memory beside their share, and "
        "quick ones come. 0: never.",
    )  # fmt: skip
    topic_list_unproven_readers_memory_percent = Key(
        "topicListUnprovenReadersMemoryPercent", 50, whole(1, 100), unit="%", dynamic=True,
        doc="Share of direct memory for lists and schemas of clients that have not shown that they read: that have "
        "taken less than 256 KiB since they last stood still, or in two seconds. Answers that fit into the client's "
        "send buffer do not count, nor do lists from 16 KiB on while `topicListSpillDirectory` has room for them. Half "
        "of it is for those that answer a PING, and for lists over HTTP. 100: no such share.",
    )  # fmt: skip
    topic_list_spill_directory = Key(
        "topicListSpillDirectory", "", text(),
        doc="Directory on a local disk for the unsent rest of lists whose clients read slowly while others wait for "
        "direct memory; topic names lie in it as plain text. Only the last part of the path is made if it is missing. "
        "Empty: such lists stay in memory.",
    )  # fmt: skip
    topic_list_spill_max_mb = Key(
        "topicListSpillMaxMB", 4096, whole(1, 1_048_576), unit="MiB", dynamic=True,
        doc="Disk space for such lists in `topicListSpillDirectory`; a tenth of the file system always stays free.",
    )  # fmt: skip
    watch_topic_list_limit_enabled = Key(
        "watchTopicListLimitEnabled", True, boolean(), dynamic=True,
        doc="Count the frames of topic-list watchers, those of scalable topics among them, on relayed connections "
        "against direct memory. `false`: relayed bytes are not inspected.",
    )  # fmt: skip
