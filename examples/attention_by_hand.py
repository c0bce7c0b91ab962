"""Equation 1 of the paper, softmax(Q Kᵀ / √d_k) V, with two queries, three keys and d_k = 2, step by step.

python examples/attention_by_hand.py
"""

import math

import torch

from model.attention import attention
from model.batch import masking_bias

Q = [[1.0, 0.0], [1.0, 1.0]]
"""Queries, one row per position: what each of two positions looks for."""
K = [[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]
"""Keys: what each of three positions offers."""
V = [[10.0, 0.0], [0.0, 10.0], [5.0, 5.0]]
"""Values: what each of these positions passes on."""
Matrix = list[list[float]]


def product(a: Matrix, b: Matrix) -> Matrix:
    """Multiplies two matrices."""
    return [[sum(x * y for x, y in zip(row, column, strict=True)) for column in zip(*b, strict=True)] for row in a]


def softmax(row: list[float]) -> list[float]:
    """Exponentiates and divides by the sum; -inf becomes 0."""
    exponentials = [math.exp(x) for x in row]
    return [x / sum(exponentials) for x in exponentials]


def show(what: str, matrix: Matrix) -> None:
    """Prints a matrix, one line per query."""
    print(what)
    for row in matrix:
        print("  " + "".join(f"{x:8.3f}" for x in row))


def main() -> None:
    """Prints all steps, then the result of the model's attention on the same matrices."""
    scores = product(Q, [list(column) for column in zip(*K, strict=True)])
    show("1. Each query times each key, Q Kᵀ:", scores)
    scaled = [[x / math.sqrt(2) for x in row] for row in scores]
    show("2. Divided by √d_k = √2 = 1.414:", scaled)
    weights = [softmax(row) for row in scaled]
    show("3. The softmax of each row, which sums to 1:", weights)
    show("4. Times the values, weighted means of V:", product(weights, V))
    masked = [
        softmax([x if key <= query else -math.inf for key, x in enumerate(row)]) for query, row in enumerate(scaled)
    ]
    show("5. Weights in a decoder, where query i sees keys up to i:", masked)
    show("6. Their weighted means of V:", product(masked, V))
    q_11LK, k_11MK, v_11MV = (torch.tensor([[matrix]]) for matrix in (Q, K, V))
    later_LM = torch.ones(2, 3, dtype=torch.bool).triu(1)
    show("model.attention, with all keys:", attention(q_11LK, k_11MK, v_11MV)[0, 0].tolist())
    bias_LM = masking_bias(later_LM, torch.float32)
    show("model.attention, with the decoder's mask:", attention(q_11LK, k_11MK, v_11MV, bias_LM)[0, 0].tolist())


if __name__ == "__main__":
    main()
