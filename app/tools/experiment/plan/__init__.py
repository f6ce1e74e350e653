"""From a grid file to the runs still to be made."""
