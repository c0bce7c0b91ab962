"""The recurrent and the convolutional model by their papers' equations: one sentence, one position at a time."""

import math
from typing import Any

import torch
from torch import Tensor

Weights = dict[str, Tensor]


def lstm(w: Weights, name: str, inputs: list[Tensor]) -> list[Tensor]:
    """LSTM with a forget gate (Gers et al. 2000), in the notation of torch.nn.LSTM; the outputs of all steps."""
    width = w[f"{name}.weight_hh_l0"].shape[1]
    h, c = torch.zeros(width).double(), torch.zeros(width).double()
    outputs = []
    for x in inputs:
        gates = w[f"{name}.weight_ih_l0"] @ x + w[f"{name}.bias_ih_l0"]
        gates = gates + w[f"{name}.weight_hh_l0"] @ h + w[f"{name}.bias_hh_l0"]
        i, f, g, o = gates.split(width)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        h = torch.sigmoid(o) * torch.tanh(c)
        outputs.append(h)
    return outputs


def recurrent(w: Weights, config: Any, source: list[int], inputs: list[int]) -> Tensor:
    """GNMT (Wu et al. 2016), with the query of the same position: hidden_TD."""

    def embedded(tokens: list[int]) -> list[Tensor]:
        return [w["embedding.weight"][token] * config.d_model**0.5 for token in tokens]

    x = embedded(source)
    h = [torch.cat(pair) for pair in zip(lstm(w, "onward", x), lstm(w, "backward_", x[::-1])[::-1], strict=True)]
    for i in range(config.n_layers - 1):
        h = [a + b for a, b in zip(h, lstm(w, f"encoder.{i}", h), strict=True)]
    s = lstm(w, "decoder.0", embedded(inputs))
    contexts = []
    for query in s:
        energies = [
            w["attention.v.weight"][0]
            @ torch.tanh(w["attention.w_query.weight"] @ query + w["attention.w_key.weight"] @ each)
            for each in h
        ]
        alphas = torch.softmax(torch.stack(energies), dim=0)
        contexts.append(sum(alpha * each for alpha, each in zip(alphas, h, strict=True)))
    for i in range(1, config.n_layers):
        above = lstm(w, f"decoder.{i}", [torch.cat(pair) for pair in zip(s, contexts, strict=True)])
        s = [a + b for a, b in zip(s, above, strict=True)]
    return torch.stack([w["output.weight"] @ each + w["output.bias"] for each in s])


def normalised(w: Weights, name: str) -> tuple[Tensor, Tensor]:
    """w = g v / ‖v‖ of each output (Salimans and Kingma 2016, eq. 2), and the bias."""
    g, v = (w[f"{name}.parametrizations.weight.original{i}"] for i in range(2))
    return torch.stack([g[i] * v[i] / v[i].square().sum().sqrt() for i in range(len(v))]), w[f"{name}.bias"]


def gated(w: Weights, name: str, window: list[Tensor]) -> Tensor:
    """[A B] = W X + b and A ⊗ σ(B) (Gehring et al. 2017, §3.2)."""
    weight, bias = normalised(w, name)
    a, b = (weight @ torch.cat(window) + bias).chunk(2)
    return a * torch.sigmoid(b)


def convolutional(w: Weights, config: Any, source: list[int], inputs: list[int]) -> Tensor:
    """ConvS2S (Gehring et al. 2017) with kernels of 3: hidden_TD."""
    half = math.sqrt(0.5)
    zero = torch.zeros(config.d_ff).double()

    def linear(name: str, x: Tensor) -> Tensor:
        weight, bias = normalised(w, name)
        return weight @ x + bias

    def embedded(tokens: list[int], table: str) -> list[Tensor]:
        return [w["embedding.weight"][token] + w[f"{table}.weight"][i] for i, token in enumerate(tokens)]

    e = embedded(source, "source_positions")
    x = [linear("encoder_input", each) for each in e]
    for layer in range(config.n_layers):
        padded = [zero, *x, zero]
        x = [(gated(w, f"encoder.{layer}", padded[i : i + 3]) + x[i]) * half for i in range(len(x))]
    z = [linear("encoder_output", each) for each in x]
    g = embedded(inputs, "target_positions")
    h = [linear("decoder_input", each) for each in g]
    for layer in range(config.n_layers):
        padded, before = [zero, zero, *h], h
        h = []
        for i, residual in enumerate(before):
            block = gated(w, f"decoder.{layer}.convolution", padded[i : i + 3])
            d = (linear(f"decoder.{layer}.query", block) + g[i]) * half
            a = torch.softmax(torch.stack([d @ each for each in z]), dim=0)
            c = sum(a[j] * (z[j] + e[j]) * half for j in range(len(z))) * len(z) * math.sqrt(1 / len(z))
            h.append(((block + linear(f"decoder.{layer}.output", c)) * half + residual) * half)
    return torch.stack([linear("decoder_output", each) for each in h])
