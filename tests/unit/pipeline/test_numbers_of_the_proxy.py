"""Numbers and small rules that the pipeline has a second time, beside those of the proxy and its limiter."""

from itertools import product

import pytest

from limiter import acquires, fair_line, semaphore
from pipeline.core import model
from proxy.clients import requests
from proxy.config.config import Config
from proxy.requests.topic_lists import groups

MIB = 1024 * 1024


def test_bounds_of_the_replay_are_those_of_the_proxy() -> None:
    assert model.LISTS_AT_ONCE == requests.LISTS_AT_ONCE
    assert model.PAYERS_ASKED == groups.MEMBERS_ASKED
    assert model.GRANTS_AT_ONCE == semaphore.MOST_AT_ONCE
    assert model.QUANTA_PER_LIMIT == acquires.QUANTA_PER_LIMIT
    assert model.MOST_IDLE_DEBTORS == fair_line.MOST_DEBTORS


@pytest.mark.parametrize(("heap_mb", "direct_mb", "most"), list(product((0, 1, 8), (0, 2, 16), (None, 4096))))
def test_largest_answer_of_the_replay_is_that_of_the_proxy(heap_mb: int, direct_mb: int, most: int | None) -> None:
    given = {
        "brokerServiceURL": "pulsar://b:6650",
        "maxTopicListInFlightHeapMemSizeMB": str(heap_mb),
        "maxTopicListInFlightDirectMemSizeMB": str(direct_mb),
    }
    config = Config.load(None, given if most is None else given | {"topicListMaxAnswerBytes": str(most)})
    limits = model.Limits(heap_bytes=heap_mb * MIB, direct_bytes=direct_mb * MIB, max_answer_bytes=most)
    # Without any limit the protocol's own bound is left: no trace has a larger answer.
    assert limits.answer_limit_bytes in (config.topic_list_answer_limit_bytes, 0 if not (heap_mb or direct_mb) else -1)
