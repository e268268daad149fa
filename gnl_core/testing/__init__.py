"""Public helpers for tests of programs, stores and models built on the runtime; each is imported from its module."""
