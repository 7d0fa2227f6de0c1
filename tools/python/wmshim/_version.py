"""The version, which is the workspace's: build_wheel.py refuses another."""

__version__ = "0.1.0"
