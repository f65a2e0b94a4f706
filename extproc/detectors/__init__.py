"""Detectors of drift: samples in, a verdict with its evidence out. One file each; pure, `now` and seeds are given.

scipy is imported in `ks` alone, and only the control side imports that.
"""
