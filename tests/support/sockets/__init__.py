"""Transports, endpoints, frames and ports."""
