"""Each rank's link to the network: what was asked of it, how it is shaped, and the measurement that proves it."""
