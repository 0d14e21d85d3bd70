"""A flow for each stage: what a client does up to the stage, what it asks there, and how it hears the answer."""
