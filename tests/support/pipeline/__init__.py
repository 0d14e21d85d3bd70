"""Events, traces and tables for tests of the pipeline."""
