"""Communication schedules, with their bytes and their minimum time, as pure functions."""
