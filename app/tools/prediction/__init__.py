"""What a step would take elsewhere: measured costs, put through the same schedules that the program runs."""
