"""Java for Spark and for the demo's broker: a runtime, and jars that are locked by hash, and the jar of our own."""
