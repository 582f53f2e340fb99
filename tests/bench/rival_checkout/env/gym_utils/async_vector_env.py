"""The place of the vector env that nobody makes here: theirs needs gym."""
