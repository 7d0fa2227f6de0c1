"""Tests of the package: ``python3 -m unittest discover tools/python``."""
