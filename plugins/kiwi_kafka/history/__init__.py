"""Reading topics again from earlier positions: a consumer for each reader, by turns."""
