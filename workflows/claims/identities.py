"""Statements of the paper that are independent of runs and machines: proven by tests, and listed on the page.

They are not counted among the claims, since no run could change their verdicts.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Identity:
    """A mathematical statement, or one counted on real text, with the test that proves or refutes it."""

    section: str
    text: str
    test: str
    """A test in `tests/pipeline/complexity/test_identities.py`, or in the file before `::`."""
    is_exact: bool = True
    """False if the paper's statement is not exact; `text` has the correction."""


IDENTITIES: tuple[Identity, ...] = (
    Identity(
        "3.1",
        "position i depends only on outputs before i",
        "tests/model/test_transformer.py::test_what_must_not_matter_changes_no_logit",
    ),
    Identity(
        "3.2.1",
        "footnote 4: products of random queries and keys have mean 0 and variance d_k",
        "test_products_of_random_queries_and_keys_have_mean_0_and_variance_d_k",
    ),
    Identity(
        "3.2.1",
        "unscaled, the softmax's gradients become extremely small: by d_k = 512, the median falls to 0.0017×",
        "test_the_softmax_s_gradient_vanishes_as_d_k_grows_unless_scaled",
    ),
    Identity(
        "3.2.1",
        "additive and dot-product attention are similar in theoretical complexity",
        "test_additive_and_dot_product_attention_are_similar_in_complexity",
    ),
    Identity("3.2.2", "h heads of d / h cost the FLOP of one head of full width", "test_heads_cost_no_flop"),
    Identity(
        "3.3",
        "the feed-forward layer is two convolutions of kernel size 1",
        "test_the_feed_forward_layer_is_two_convolutions_of_kernel_size_1",
    ),
    Identity(
        "3.5",
        "PE(pos + k) is a linear function of PE(pos)",
        "test_the_encoding_of_a_later_position_is_linear_in_that_of_an_earlier",
    ),
    Identity(
        "3.5",
        "wavelengths end at 9,647 · 2π for d_model = 512, not at 10,000 · 2π",
        "test_wavelengths_are_a_geometric_progression",
        is_exact=False,
    ),
    Identity(
        "4",
        "a convolution is linear in k, and costs k / 2 recurrent layers with two products or k / 8 LSTMs, not k",
        "test_a_convolution_costs_k_over_2_elman_and_k_over_8_lstm_layers",
        is_exact=False,
    ),
    Identity(
        "4",
        "of all layer types, only recurrence takes O(n) sequential operations",
        "tests/pipeline/complexity/test_counting.py::test_only_recurrence_has_more_products_in_sequence_for_more_positions",
    ),
    Identity("4", "restricted attention is linear in r", "test_restricted_attention_is_linear_in_r"),
    Identity(
        "4",
        "paths take n / r layers of restricted attention, and n / k of contiguous kernels",
        "tests/pipeline/complexity/test_counting.py::test_paths_are_as_long_as_worked_out_by_hand",
    ),
    Identity(
        "4",
        "a separable convolution costs less than a full one, and with k = n no more than attention and one matrix",
        "test_a_separable_convolution_costs_less_than_a_full_one_and_with_k_equal_n_no_more_than_attention",
    ),
    Identity(
        "4",
        "dilated one-sided kernels connect all positions in log_k(n) layers",
        "test_one_sided_paths_are_logarithms_to_the_base_k",
    ),
    Identity(
        "4",
        "centred kernels need more: 4 layers for n = 128 and k = 7, where log_k(n) rounds to 3",
        "test_centred_kernels_need_more_layers_than_the_logarithm",
        is_exact=False,
    ),
    Identity(
        "4",
        "a single convolution of k < n does not connect all pairs of positions",
        "test_a_single_convolution_of_k_below_n_does_not_connect_all_pairs",
    ),
    Identity(
        "4",
        "n is smaller than d_model = 512 in all of newstest2013 and of a sample of Europarl, in 37,000 pieces",
        "test_sentences_are_shorter_than_the_model_is_wide",
    ),
)
"""In the paper's order."""
