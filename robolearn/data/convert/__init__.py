"""Data sets from other data sets: edits, imports, exports, bags."""
