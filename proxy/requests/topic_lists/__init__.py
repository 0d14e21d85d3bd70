"""The path of a topic list: group, heap permit, question, growth, direct permit, body, answer (PIP-442).

Start with `service.py`: the steps stand there one under the other. `groups.py` shares an answer, `lenders.py` asks with
credentials that others share, `broker_queues.py` bounds the questions to each broker, `question.py` is one of them and
how its answer is admitted, `bodies.py` encodes, `sizes.py` remembers sizes for estimates, `unproven.py` has the turns
of clients that have not shown that they read, `heap_crowds.py` bounds their lists that wait, `memory.py` has all memory
of lists. Error texts:
`Stage` in `proxy/telemetry/refusals.py`. Over HTTP: `proxy/web/forward/topic_list_permits.py`.
Rule: the pipeline has this path a second time, in `pipeline/replay/`. Change both.
"""
