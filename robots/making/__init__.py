"""A robot folder of the user's own, made of a URDF or an MJCF, and checked rule by rule."""
