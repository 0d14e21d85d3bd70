"""The path of a topic list: group, heap permit, question, growth, direct permit, body, answer (PIP-442).

Start with `service.py`: the steps stand there one under the other. `groups.py` shares an answer, `broker_queues.py`
bounds the questions to each broker, `bodies.py` encodes, `sizes.py` remembers sizes for estimates.
Rule: the pipeline has this path a second time, in `pipeline/replay/`. Change both.
"""
