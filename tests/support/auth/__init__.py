"""Credentials, issuers and certificates of tests."""
