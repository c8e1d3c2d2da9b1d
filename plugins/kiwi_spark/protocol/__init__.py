"""What gateway and driver say to each other. Both import it; it imports neither Trio nor PySpark."""
