"""Driver emulators: topics, stamps and behaviour of robot drivers, with a simulated arm inside.

An emulator stands in for the driver in a rehearsal (`robolearn deploy --rehearse`) and in tests; it is written from the
driver's sources and shares no code with it.
"""
