"""What columns and bars mean, in the same words on every page: of one run, of several, of an experiment."""

BUT_THE_FIRST = "over all ranks and all steps but the first"  # which sets everything up
INTERVALS = "intervals of 95 % confidence"

WAIT_AND_SYNC = "Wait: until the slowest rank has arrived. Sync: from then on."
PHASES = f"Data to optimiser add up to the step. {WAIT_AND_SYNC} Hidden sync: behind backward, in none of the others."
IMAGES = "Images/s: by wall clock from the second step's start to the last one's end, with gaps, without evaluations."
LINKS_USED = "Links used: the least seconds that the links allow, by the seconds taken."
SENT = "Sent: by a rank in a step, the mean over ranks."
HIDDEN_BAR = " Thin bar: synchronisation that backward hides. Its length counts, not its position."
