"""The rules of fair share, one a file, named after what they decide."""
