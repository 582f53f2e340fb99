"""``robolearn dataset``: look at a data set, check it, edit it, turn it into other formats and back."""
