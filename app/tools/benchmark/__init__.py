"""What the program's own parts cost, as ratios within one run, because machines differ."""
