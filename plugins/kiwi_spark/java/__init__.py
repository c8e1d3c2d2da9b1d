"""Java for Spark and for the demo's broker: a runtime, and jars that are locked by hash."""
