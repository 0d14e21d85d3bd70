"""Own complete topic-list answers of any size, received as a broker connection receives them."""

from protocol.frames import answer_prefix, read_head
from protocol.pb import PulsarApi_pb2 as pb
from protocol.slabs import SlabPool
from protocol.topic_list import TopicListAnswer

LIST = pb.BaseCommand.GET_TOPICS_OF_NAMESPACE_RESPONSE


def answer_of(size: int) -> TopicListAnswer:
    """Give a complete list whose bytes behind the request id are `size` many."""
    topics = pb.CommandGetTopicsOfNamespaceResponse(topics=["t" * 96] * (size // 98))
    topics.topics.append("u" * (size % 98 + 10))
    rest = topics.SerializePartialToString()
    answer = TopicListAnswer(read_head(answer_prefix(LIST, 1, len(rest)) + rest[:64]), SlabPool())
    at = 0
    while at < len(rest):
        place = answer.writable()
        place[:] = rest[at : at + len(place)]
        at += len(place)
        answer.advance(len(place))
    return answer
