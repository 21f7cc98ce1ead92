"""What teaches: the grader of the labs, what the notebooks are written with, and the scenarios that are recorded.

What belongs to one lab or to one notebook lies beside it in notebooks/, imported as minivllm.lessons.
"""
