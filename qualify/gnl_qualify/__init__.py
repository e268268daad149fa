"""The exam room: blind exam, scoring, certificates."""
