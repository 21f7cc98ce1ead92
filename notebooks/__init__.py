"""Lessons and labs: what belongs to one notebook or to one lab lies beside it, and is imported as minivllm.lessons."""
