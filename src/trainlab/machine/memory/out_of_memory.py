"""Whether an error says that memory ran out: of the machine, or of a device."""

import torch

OUT_OF_MEMORY = "OutOfMemory"
"""The kind of failure of a trial that had too little, whoever noticed."""
SAID_BY_TORCH = ("can't allocate memory", "not enough memory", "std::bad_alloc", "out of memory")


def is_out_of_memory(error: BaseException) -> bool:
    """torch has a kind of error for it on devices only; on the CPU the text tells."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and any(text in str(error) for text in SAID_BY_TORCH)
