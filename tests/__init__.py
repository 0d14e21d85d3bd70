"""Tests, in folders by what they need.

unit, property, model   virtual time and no sockets to the outside; `unit` mirrors the rooms of the code
integration             a whole proxy, real sockets, the embedded broker
native, rust            the native extension beside its Python twins; the crate's own checks
faults, soak, fuzz      the fault matrix, an hour's load, foreign bytes (docs/reliability.md)
load                    the load test of `make load`, by Locust, for users, too; not benchmarks/ladder
conformance, pulsar     real Pulsar brokers, real clients
spark                   the pipeline in a Spark of its own
helm, deploy, release   rendered charts; the image, Compose, systemd; what a release has
support, fixtures       what tests share; files that are read for ever
transcripts             bytes on the wire, recorded

The embedded broker is `support/brokers/embedded/`, and its faults are in `script.py` (a delay is a gate, never a time).
"""
