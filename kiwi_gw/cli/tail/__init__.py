"""`kiwi-gw tail`: the events of a source, as they come."""
