"""The bytes and the least time of each pattern of messages, as pure functions."""
