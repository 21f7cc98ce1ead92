"""What compares and measures: recordings of the real vLLM, its source, the cost of a step, and this machine."""
