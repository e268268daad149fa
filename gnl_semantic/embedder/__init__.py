"""Embedders: texts to unit vectors, on this machine."""
