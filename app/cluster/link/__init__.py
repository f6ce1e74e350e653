"""Each rank's link: how it is shaped, and the measurement that proves it."""
