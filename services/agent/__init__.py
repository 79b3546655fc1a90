"""The agent: runs the real processes of its hosts and reports what they do."""
