"""Watching the cluster and its topics, and asking about them."""
