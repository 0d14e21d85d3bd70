"""Whether advice holds: a storm on a real proxy is recorded, and what is advised meets another storm.

It guards the bounds of advice (ADR 56).
"""
