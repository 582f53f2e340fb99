"""``robolearn hub``: policies and data sets on a hub of Hugging Face's protocol."""
