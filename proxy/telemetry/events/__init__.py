"""The event log of the proxy: records of topic lists, their identities, and the sinks they are written to.

Start with `recorder.py` (lists in lookup mode); `direct_records.py` has lists over HTTP and frames for watchers,
`throttle_records.py` decisions of the throttles. `timeline.py` measures the stages of a request, `outcomes.py` maps
errors, `identities.py` makes hashes of names. `log.py` owns the sinks, `topic_sink.py` and `topic.py` the one of a
Pulsar topic (`topic_credentials.py`, `topic_watch.py`: whether the topic keeps events, `requirements.py`: the
library), `counters.py` counts. This room makes events only: the fields are declared in `eventlog.schema`; files, disk
errors and bounds on files are `eventlog/files.py` and `eventlog/total.py`.
"""
