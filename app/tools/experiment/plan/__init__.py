"""From a grid file to the runs that are still to be made."""
