"""The log: effects, batches and pages, and batches that are refused."""

# The vectors of effects come first: other effects and batches nest them by their names.
from .vectors import EFFECT_VECTORS
from .batches import BATCH_VECTORS, PAGE_VECTORS
from .malformed import BAD_BATCHES

__all__ = ["BAD_BATCHES", "BATCH_VECTORS", "EFFECT_VECTORS", "PAGE_VECTORS"]
