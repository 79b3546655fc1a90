"""Examples: a budget tree, real scripts, and the demo that runs them."""
