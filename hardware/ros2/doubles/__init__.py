"""Doubles of robot drivers: their topics, stamps and habits, and a simulated arm inside.

A double stands in for the driver in a rehearsal (`robolearn deploy --rehearse`) and in tests; it is written from what
the driver's sources say and shares no code with it.
"""
