"""Fields, by subject."""
