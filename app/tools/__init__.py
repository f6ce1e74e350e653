"""What looks at the program from outside: planned, predicted, timed, checked, broken and started."""
