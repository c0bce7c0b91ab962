"""Holds what the paper argues in words, with the figures in these sentences; section marks are the paper's."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Claim:
    """Something that the paper argues."""

    key: str
    section: str
    text: str
    """In the paper's words, shortened."""


CLAIMS: tuple[Claim, ...] = (
    Claim("alike", "3.2.1", "for small d_k, additive and dot-product attention perform similarly"),
    Claim("additive", "3.2.1", "for larger d_k, additive attention outperforms dot-product attention without scaling"),
    Claim("scaling", "3.2.1", "scaling by 1/√d_k counteracts this"),
    Claim("variance", "3.2.1", "footnote 4: the product of independent q and k has variance d_k"),
    Claim("gradients", "3.2.1", "large products push the softmax into regions of extremely small gradients"),
    Claim("faster", "3.2.1", "dot-product attention is much faster than additive attention"),
    Claim("smaller", "3.2.1", "dot-product attention is more space-efficient than additive attention"),
    Claim("heads", "3.2.2", "h heads of d_model / h cost about as much as one head of full width"),
    Claim("linear", "3.5", "for any fixed offset k, PE(pos + k) is a linear function of PE(pos)"),
    Claim("extrapolation", "3.5", "sinusoids may extrapolate to sequences longer than those trained on"),
    Claim("better than learned", "3.5", "which is why they were chosen over learned positions"),
    Claim("exponents", "4", "Table 1: the complexity of each layer type, over n and d"),
    Claim("kernel", "4", "a convolution is O(k·n·d²): linear in k"),
    Claim("window", "4", "restricted self-attention is O(r·n·d): linear in r"),
    Claim("sequential", "4", "self-attention takes a constant number of sequential operations, recurrence O(n)"),
    Claim("n below d", "4", "n is most often smaller than d in sentence representations"),
    Claim("recurrence", "4", "self-attention is faster than recurrence where n is smaller than d"),
    Claim("neighbourhood", "4", "restricting self-attention to r positions lengthens paths to O(n/r)"),
    Claim("contiguous", "4", "connecting all positions takes O(n/k) convolutions with contiguous kernels"),
    Claim("dilated", "4", "connecting all positions takes O(log_k(n)) convolutions with dilated kernels"),
    Claim("factor k", "4", "convolutional layers are more expensive than recurrent ones by a factor of k"),
    Claim("separable", "4", "separable convolutions decrease the complexity to O(k·n·d + n·d²)"),
    Claim("k is n", "4", "a separable convolution with k = n costs what self-attention and a point-wise layer do"),
    Claim(
        "record en-de", "6.1", "EN-DE: big is better than all models before, ensembles included, by more than 2.0 BLEU"
    ),
    Claim("base", "6.1", "EN-DE: even base surpasses all models and ensembles before"),
    Claim("base cost", "6.1", "EN-DE: base costs a fraction of the training of any competitive model"),
    Claim("record en-fr", "6.1", "EN-FR: big outperforms all single models before"),
    Claim("cost en-fr", "6.1", "EN-FR: at less than 1/4 of the training cost of the best of them"),
    Claim("averaging", "6.1", "the average of the last checkpoints is used: better than the last checkpoint by itself"),
    Claim("beam", "6.1", "a beam of 4 and α = 0.6 were chosen on the development set"),
    Claim("one head", "6.2", "one head is 0.9 BLEU worse than the best setting"),
    Claim("berkeley", "6.3", "the Transformer outperforms the BerkeleyParser when trained on WSJ only"),
    Claim("all but one", "6.3", "without tuning for the task, better than all models before but the RNN Grammar"),
    Claim("longer", "6.3", "the output is significantly longer than the input"),
    Claim("constraints", "6.3", "the output is subject to strong structural constraints, which nothing enforces"),
    Claim("distant", "figure 3", "heads attend to a distant dependency of the verb"),
    Claim("anaphora", "figure 4", "heads are apparently involved in anaphora resolution"),
    Claim("sharp", "figure 4", "their attention is very sharp for the pronoun"),
    Claim("tasks", "figure 5", "heads clearly learned to perform different tasks"),
)
"""What is argued in words, top to bottom; `workflows.paper.ORDERINGS` are the claims about the rows of Table 3."""
BERKELEY_PARSER, RNN_GRAMMAR = "Petrov et al. (2006)", "Dyer et al. (2016)"
"""What §6.3 calls the BerkeleyParser and the Recurrent Neural Network Grammar, in Table 4."""
RECORD_BLEU, COST_FRACTION, ONE_HEAD_BLEU = 2.0, 1 / 4, 0.9
"""The figures in these sentences (§6.1, §6.2)."""
