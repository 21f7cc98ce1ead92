"""What a trace says, and how it looks: sentences, reasons, tables, differences, exports; the page; pictures.

Everything here reads a finished trace (minivllm/trace). Nothing here needs the engine, and nothing of the engine
imports it.
"""
