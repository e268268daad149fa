"""The local judge: a small classifier over evidence of two texts."""
