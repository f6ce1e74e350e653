"""What a run leaves behind, as types: each file with one writer and one reader."""
