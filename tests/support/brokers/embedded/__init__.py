"""The embedded broker: lookups, topic lists, watchers and schemas as Pulsar's broker 4.x has them, and faults.

names      topic names: listed one by one, or those of the demo
topics     the namespaces and topics of a broker, and the fields of a topic-list answer
watchers   the topic-list watchers of a connection
script     the faults that the broker simulates (a delay is a gate, never a time)
record     the commands that the broker has received
answers    the answer to each request, as bytes
session    a connection of the broker
broker     the broker: start here
"""
