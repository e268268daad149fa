"""One small adapter a peer; `work` is what all of them do, `worker` is the process each runs in."""
