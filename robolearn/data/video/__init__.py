"""Camera images as they are stored: how they are encoded, and how they are decoded.

`encoder` writes a video while an episode is recorded. `readers` are the frames of one camera in a whole set, at any
place, for training; `segments` the images of one camera in one episode, in order or copied without decoding, for
conversions and edits; `container` the pictures of a video file; `packing` one picture as bytes, without loss.
"""
