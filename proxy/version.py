"""The version of this distribution, declared once."""

VERSION = "0.1.0"
