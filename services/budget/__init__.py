"""The budget role: the tree, who may enter the queue, and the books of what ran."""
