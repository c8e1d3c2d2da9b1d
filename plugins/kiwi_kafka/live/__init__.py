"""Reading topics as records arrive: consumers that several sources share."""
