"""The Kiwi WebSocket protocol: SUBSCRIBE, UNSUBSCRIBE, REQUEST; RESULT and NOTICE."""
