"""Detectors of drift: samples in, a verdict with its evidence out. One file each; pure, `now` and seeds are given.

None imports scipy, see `ks`.
"""
