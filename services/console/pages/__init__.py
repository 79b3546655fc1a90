"""The pages, one module each: what is asked, and the tables and figures that are shown."""
