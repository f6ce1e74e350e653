"""From records to numbers and sentences."""
