"""From finished runs to figures with their uncertainty."""
