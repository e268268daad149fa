"""Adapters of the providers' own SDKs, each loaded when a model of its provider is first resolved."""
