"""Communication between ranks: the communicator that counts payload, single-number messages, a common clock."""
