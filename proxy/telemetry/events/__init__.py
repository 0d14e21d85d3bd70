"""The event log of the proxy: records of topic lists, their identities, and the sinks they are written to.

Start with `recorder.py` (lists in lookup mode; `reports.py` keeps it beside other reports); `direct_records.py` has
lists over HTTP and frames for watchers,
`throttle_records.py` decisions of the throttles. `timeline.py` measures the stages of a request, `outcomes.py` maps
errors, `identities.py` makes hashes of names. `log.py` builds, starts and closes the sinks, and logs their failures at
a pace; `topic_sink.py` and `topic.py` are the sink of a Pulsar topic (`topic_credentials.py`, `topic_watch.py`: whether
the topic keeps events, `requirements.py`: the library). The fields are declared in
`eventlog.schema`; files, disk errors and bounds on files are `eventlog/files.py` and `eventlog/total.py`.
"""
