"""Camera images as they are stored, and how they are decoded.

`readers` the frames of one camera in a whole data set, at any place, for training; `segments` the images of one camera
in one episode, in order or copied without decoding, for conversions and edits; `container` what a video file is.
"""
