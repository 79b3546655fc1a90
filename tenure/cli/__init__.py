"""The `tenure` command. Modules here import only what is light at the top: a submission must be quick from a shell."""
