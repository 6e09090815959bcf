"""How the rank of H_o grows with the parameters: bounded in networks linear in the input, nearly all otherwise."""

from __future__ import annotations

from hessmap.errors import checked_count, require


def linear_map_upper_bound(input_rank: int, output_dim: int) -> int:
    """rk H_o <= K r for every network F(x) = A(theta) x, however many parameters it has.

    Args:
        input_rank: Rank r of the inputs.
        output_dim: Number K of outputs.

    Returns:
        K r.

    Notes:
        The derivatives of F are linear maps of the inputs, of which there are K r independent ones on inputs of rank r.

    Example:
        >>> linear_map_upper_bound(3, 2)
        6
    """
    return checked_count("input_rank", input_rank) * checked_count("output_dim", output_dim)


def attention_tangent_rank(num_layers: int, width: int, key_width: int, value_width: int | None = None) -> int:
    """The number of independent tangent functions of linear attention with skips: all parameters less a group's.

    Args:
        num_layers: Number L of layers X + X Q K^T X^T X V.
        width: Width d of tokens.
        key_width: Width k of Q and K, at most the width.
        value_width: Width v of a factorised V = A B, at most the width. Defaults to None: one square matrix.

    Returns:
        p - L (k^2 + v^2 + 1): GL(k) between Q and K, GL(v) between A and B, and a scale between Q K^T and V.

    Raises:
        InvalidInput: If a width is above that of the tokens.

    Notes:
        An upper bound by these groups; equality is a conjecture. This is the rank of H_o for many samples.

    Example:
        >>> attention_tangent_rank(2, 3, 1)  # 30 parameters
        26
    """
    count, size, keys = (
        checked_count(name, value)
        for name, value in (("num_layers", num_layers), ("width", width), ("key_width", key_width))
    )
    values = 0 if value_width is None else checked_count("value_width", value_width)
    require(max(keys, values) <= size, f"key_width and value_width must be at most {size}", f"got {keys} and {values}")
    of_values = 2 * size * values if values else size * size
    return count * (2 * size * keys + of_values - keys**2 - values**2 - 1)
