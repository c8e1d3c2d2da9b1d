"""Pulsar's REST interface (document 003, PIP-64): producing over HTTP."""
