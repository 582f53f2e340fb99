"""A data set on disk or on a server → arrays and pictures."""
