"""Judges: one question, three words, a certificate."""
