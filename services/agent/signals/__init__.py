"""What says that a host is unwell: one pure parser a source, from bytes or a root directory to signals. No policy."""
