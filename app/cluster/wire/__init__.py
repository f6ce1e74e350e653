"""What passes between ranks: the communicator that counts it, single numbers, a common clock."""
