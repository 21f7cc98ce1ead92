"""Every error a user can cause or meet, in one place.

Each message names the value, the limit, and what to do. `InputError` is raised before anything is allocated.
"""


class InputError(ValueError):
    """The caller asked for something that can't be done; nothing was changed.

    vLLM: exceptions.py::VLLMValidationError (simplified: no parameter and value attributes)
    """


class UnknownNameError(InputError, TypeError):
    """A keyword that no parameter has. Also a TypeError, as Python callers expect of a wrong keyword."""


class ModelError(ValueError):
    """The model folder can't be used: missing files, unsupported architecture, wrong tensors."""


class EngineDeadError(RuntimeError):
    """The engine core process has ended; the engine can't be used any more.

    vLLM: v1/engine/exceptions.py::EngineDeadError
    """
