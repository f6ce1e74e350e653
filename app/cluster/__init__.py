"""Who we are: how ranks find each other, what they know of each other, and which of them was lost."""
