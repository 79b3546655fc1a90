"""Pictures of a log: one page that works offline, static images, and two reports side by side."""
