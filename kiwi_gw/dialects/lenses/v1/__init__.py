"""Lenses WebSocket API v1 (document 000): requests and answers by `correlationId`, KAFKAMSG, HEARTBEAT."""
