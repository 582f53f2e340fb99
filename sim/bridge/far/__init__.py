"""The side of the bridge that a world lives on.

These files run in the world's own interpreter, from Python 3.9 on, with nothing but numpy and gymnasium; robolearn and
its libraries need not be there, and are imported relatively, because the folder has another name there. Worlds that
live in our own interpreter are the same code.
"""
