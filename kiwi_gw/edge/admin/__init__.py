"""What operators see on the admin address: metrics, and who is connected to what."""
