"""The process that runs the queries: it imports PySpark and no Trio."""
