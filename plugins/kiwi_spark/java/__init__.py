"""Java for Spark and for the demo's broker: a runtime, jars that are locked by hash, and a jar of our own."""
