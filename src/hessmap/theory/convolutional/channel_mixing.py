"""What mixing the channels of hidden layers takes from the outer-product Hessian: padding, bias, stride, any dimension.

At a hidden layer v the weights g W_v, g b_v and W_{v+1} g^-1 compute what W_v, b_v and W_{v+1} do, for every invertible
m_v x m_v matrix g: filters see channels through sums, and zeros of the padding stay zeros. Without padding behind it a
bias b_v can also be moved into the next layer's. These directions change no output, and so are in the kernel of H_o.
"""

from __future__ import annotations

from collections.abc import Sequence

from hessmap.errors import require


def channel_mixing_upper_bound(
    channels: Sequence[int],
    layer_parameters: Sequence[int],
    biases: Sequence[bool] = (),
    is_padded: Sequence[bool] = (),
) -> int:
    """The outer-product Hessian of a linear convolutional network has rank at most p - mixing - shifts.

    ``channels`` are m_0, .., m_L and the outputs that the loss can tell apart, ``layer_parameters`` p_1, .., p_{L+1},
    those of the dense layer last; ``biases`` say of each layer whether it has a bias, ``is_padded`` of each convolution
    whether it is padded.

    Formula: a bias b_v can be moved where layer v + 1 has a bias too and no padding. in_v are the weights of a filter,
    and its bias if that cannot be moved; out_v the weights of layer v + 1 that leave one channel. Hidden
    layers are fed from the input up to the first with m_v > in_v, and from the output down to the first with
    m_v > out_v. mixing is the sum of m_v^2 over those that are fed from either side; if only one is not, it counts too,
    with m_v^2 - (m_v - in_v)+ (m_v - out_v)+. shifts is the sum of m_v over the hidden layers that are
    fed from the input and whose bias can be moved.

    Proof: the changes (g_l W_l - W_l g_{l-1}) of all g are in the kernel. One that is zero has g_1 W_1 = 0, so g_1 = 0
    if W_1 has independent rows, then nothing is moved from b_1, then g_2 = 0, and so on; likewise from the output; a
    single layer between has g W_v = 0 = W_{v+1} g, of dimension (m_v - in_v)+ (m_v - out_v)+ for generic weights. (A
    bias that can be moved does not count among in_v: g b_v may be just what is moved. conv-1x6x3-4x1x3/2-1 with bias
    has rank 10; counting it would give 9.) A rank that holds for generic weights bounds that of all.

    Assumptions: linear network, last layer dense; valid for all weights, inputs and losses.

    Reference: none in print. By hand: 2 filters of 9 taps, 4 positions and 3 outputs have 18 + 24 parameters, less the
    4 of a 2 x 2 matrix; with a bias in both layers 47, less 4 and 2.

    >>> channel_mixing_upper_bound((1, 2, 3), (18, 24))
    38
    >>> channel_mixing_upper_bound((1, 2, 3), (20, 27), biases=(True, True))
    41
    """
    _, *hidden, _ = channels
    count = len(hidden)
    marks = tuple(biases) or (False,) * (count + 1)
    padded = (*(tuple(is_padded) or (False,) * count), False)
    must = "channel mixing needs the parameters, biases and paddings of every layer"
    is_whole = len(layer_parameters) == len(marks) == count + 1 == len(padded)
    require(is_whole, must, f"got {len(layer_parameters)}, {len(marks)} and {len(padded) - 1} for {count} convolutions")
    is_moved = [marks[v] and marks[v + 1] and not padded[v + 1] for v in range(count)]
    entering = [layer_parameters[v] // hidden[v] - is_moved[v] for v in range(count)]
    leaving = [(layer_parameters[v + 1] - marks[v + 1] * channels[v + 2]) // hidden[v] for v in range(count)]
    from_input = _num_fed(hidden, entering)
    from_output = count - _num_fed(hidden[::-1], leaving[::-1])
    unfed = range(from_input, from_output)
    mixing = sum(filters**2 for v, filters in enumerate(hidden) if v not in unfed)
    if len(unfed) == 1:
        v = unfed[0]
        mixing += hidden[v] ** 2 - max(hidden[v] - entering[v], 0) * max(hidden[v] - leaving[v], 0)
    shifts = sum(hidden[v] for v in range(from_input) if is_moved[v])
    return sum(layer_parameters) - mixing - shifts


def _num_fed(hidden: Sequence[int], fed: Sequence[int]) -> int:
    """How many layers come before the first that has more channels than it is fed numbers.

    >>> _num_fed((2, 5, 1), (4, 4, 4))
    1
    """
    return next((place for place, (own, most) in enumerate(zip(hidden, fed, strict=True)) if own > most), len(hidden))
