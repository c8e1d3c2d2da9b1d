"""Lenses SQL over WebSocket, v2 (document 001): one statement per connection, and its records until END."""
