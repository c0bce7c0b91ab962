import pytest
import torch

from pipeline.memory import is_out_of_memory


def test_what_torch_and_python_raise_when_memory_runs_out() -> None:
    """Recognizes the error of a tensor too large for any machine, the CUDA allocator's, and Python's."""
    with pytest.raises(RuntimeError) as raised:
        torch.empty(10**15)
    assert is_out_of_memory(raised.value)
    assert is_out_of_memory(torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB"))
    assert is_out_of_memory(MemoryError())


@pytest.mark.parametrize(
    "message",
    [
        "CUDA error: an illegal memory access was encountered",
        "out of resource: shared memory, Required: 294912, Hardware limit: 232448",
        "could not create a memory object",
    ],
)
def test_other_faults_that_speak_of_memory(message: str) -> None:
    """Bugs or limits of a kernel are not out of memory: smaller batches would hide them."""
    assert not is_out_of_memory(RuntimeError(message))
