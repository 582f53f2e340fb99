"""Public code of others, run in our worlds beside ours, from a checkout that the user names."""
