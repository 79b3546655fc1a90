"""Following with real receivers."""
