"""What `/metrics` shows: the catalog of all metrics, a snapshot of their values, and the text of a scrape."""
