"""What a run leaves behind, as types, with one writer and one reader each."""
