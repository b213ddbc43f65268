"""The encoder of generate.py, by subject."""
