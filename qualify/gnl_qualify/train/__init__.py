"""Train the local judge on the calibration set: `python -m gnl_qualify.train`."""
