"""Reports that a person reads: one self-contained HTML file each."""
