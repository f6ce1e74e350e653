"""The records of a run as types: each file has one writer and one reader."""
