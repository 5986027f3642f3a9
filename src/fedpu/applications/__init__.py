"""applications: what stands on the whole line: running, comparing, reproducing, estimating, measuring."""
