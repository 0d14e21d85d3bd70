"""Generators of parts of the Helm charts, and a renderer of charts; charts contain none of this code."""
