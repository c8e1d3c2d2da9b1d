"""The two protocols of Lenses: WebSocket v1 (`v1/`) and SQL v2, with the SQL that both speak (`sql/`)."""
