"""PulsarApi.proto and the modules that `scripts/generate_proto.py` makes of it; nobody edits those."""
