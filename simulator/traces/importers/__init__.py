"""One module a source: each reads its file into `Record`s and notes what was odd about it."""
