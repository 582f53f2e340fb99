"""``robolearn benchmark faults``: a station of real nodes, the faults that it is given, and a witness."""
