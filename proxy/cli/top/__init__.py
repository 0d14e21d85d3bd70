"""`pulsar-proxy top`: what a proxy shows of itself, and the command that asks for it."""
