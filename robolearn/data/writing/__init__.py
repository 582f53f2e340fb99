"""Episodes → a data set on disk, whole or not at all, and what a kill leaves put right."""
