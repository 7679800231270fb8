"""Pictures of strangers: known by their bytes, decoded within bounds, made small.

All but sniff.py and failure.py loads decoders: only tasks of chambers import it, never a replica.
"""
