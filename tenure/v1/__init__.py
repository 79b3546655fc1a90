"""Generated from `proto/`: run `make proto`, never edit."""
