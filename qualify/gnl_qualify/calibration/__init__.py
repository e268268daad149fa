"""Calibration: where an embedder's cosines lie, what threshold keeps the repeats, and what the whole chain does."""

from gnl_core.errors import MissingExtraError

try:
    import scipy  # noqa: F401
    import sklearn  # noqa: F401
except ImportError:
    # Raised when a calibration is asked for, not after every text was embedded.
    raise MissingExtraError("calibrating", "qualify") from None

from gnl_qualify.calibration.run import Calibration, calibrate

__all__ = ["Calibration", "calibrate"]
