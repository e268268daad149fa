"""The two parts of scale.py."""
