"""Each rank's link: shaping it, and measuring it before a run."""
