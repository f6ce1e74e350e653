"""What predictions and verifications look like: their figures, what is said of them, and the page of each."""
