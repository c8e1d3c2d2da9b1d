"""The side of a Spark source that runs in the gateway: it imports Trio and no PySpark."""
