"""Who we are: how ranks find each other, what they know of each other, which one was lost."""
