"""References: every place that names a symbol of vLLM, checked, and followed through vLLM's versions.

    source, wheel   a tree of vLLM's source: a folder, a zipped wheel, an installed package; fetching a wheel
    resolve, index  where a symbol is defined in a file, and its text; the same for a whole tree
    uses            how a reference is written
    collect         our references: from docstrings, from the table of events, from docs and notebooks (cut by prose)
    lock            what the symbols were at 0.22.0
    check           our references against the lock or a tree
    follow, drift   where a symbol went in another version; the verdict on every symbol
    report          findings and verdicts as text, JSON and Markdown
    map_page        the generated page docs/vllm-map.md
    drift_page      the generated page docs/drift.md; ideas: what it sums up
    cli             `minivllm refs`

A reference is written `v1/core/sched/scheduler.py::Scheduler.schedule`: a file, relative to the `vllm` package, and a
qualified name in it. It stands in the last line of a docstring, as `vLLM: file::name`, with a note in brackets where
ours is simpler; in a room that mirrors vLLM also as `vLLM: none, reason`. In docs and notebooks it stands anywhere in
the text.

Must not know: torch, the engine, or vLLM as code. Both sides are read as text, and nothing of either is imported.
"""
