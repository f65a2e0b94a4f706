"""Learns the weights of the intent model from labelled texts, and tells how good they are.

Belongs here: rows, patterns that become rows, the network and its calibration, figures and pictures. Forbidden:
anything the serving processes import: numbers are crunched here for minutes.
"""
