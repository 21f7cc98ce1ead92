"""The labs: build parts of the engine, graded by what the real vLLM decided.

A composition root: it may import the engine, and nothing of the engine imports it. The labs' texts lie in
notebooks/labs/, their evidence in traces/labs/ and traces/vllm-0.22.0/. docs/instructor.md says how to run a class,
and notebooks/labs/README.md how a lab is built.
"""
