"""Facts: what happened, as frozen structs. One module per writer; `catalogue` lists them all."""
