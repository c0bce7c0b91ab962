import pytest
import torch

from pipeline.memory import is_out_of_memory


def test_what_torch_and_python_raise_when_memory_runs_out() -> None:
    """A kernel's bugs and limits, which smaller batches would hide, are none of it."""
    with pytest.raises(RuntimeError) as raised:
        torch.empty(10**15)
    assert is_out_of_memory(raised.value)
    assert is_out_of_memory(torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB"))
    assert is_out_of_memory(MemoryError())
    for message in (
        "CUDA error: an illegal memory access was encountered",
        "out of resource: shared memory, Required: 294912, Hardware limit: 232448",
        "could not create a memory object",
    ):
        assert not is_out_of_memory(RuntimeError(message))
