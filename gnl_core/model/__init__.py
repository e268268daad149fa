"""Models: the messages, the port, names of the form 'provider/model', fallback chains, and the providers."""
