"""Products of matrices in the order in which Eigen is quick.

Gradients of a layer's inputs are products with its matrix transposed, and Eigen takes two to four times as long for
those as for the layer itself, since it gathers the matrix against the way it lies. The product is turned: the matrix is
read as it lies, and only the rows of the batch change places, which are few. The sums are the same but for their order.
"""

from __future__ import annotations

from typing import Any

from jax import lax

LAST_WITH_LAST = (((1,), (1,)), ((), ()))
"""The dimensions of a product with a transposed matrix, as XLA has them."""
FEWEST = 2**15
"""Multiplications from which it is worth the turning: at 8 rows and layers of 64."""


def rule(usual: Any) -> Any:
    """How such products are lowered; all others in the `usual` way."""
    from jax.interpreters import mlir

    turned = mlir.lower_fun(turned_product, multiple_results=False)

    def lower(context: Any, rows: Any, matrix: Any, **parameters: Any) -> Any:
        first, second = context.avals_in
        quick = is_slow(first.shape, second.shape, parameters["dimension_numbers"])
        return (turned if quick else usual)(context, rows, matrix, **parameters)

    return lower


def is_slow(rows: tuple[int, ...], matrix: tuple[int, ...], dimensions: Any) -> bool:
    """Whether Eigen would be quicker with the product turned. With more rows than the matrix has, turning them costs
    more than it saves."""
    if dimensions != LAST_WITH_LAST or len(rows) != 2 or len(matrix) != 2:
        return False
    return 1 < rows[0] <= matrix[0] and rows[0] * matrix[0] * matrix[1] >= FEWEST


def with_transposed(rows: Any, matrix: Any) -> Any:
    """[B, n], [m, n] -> [B, m], as it is written for a gradient."""
    return lax.dot_general(rows, matrix, LAST_WITH_LAST)


def turned_product(rows: Any, matrix: Any, *, dimension_numbers: Any, **parameters: Any) -> Any:
    """The same."""
    assert dimension_numbers == LAST_WITH_LAST
    # XLA would see that two transpositions undo each other, and have what was written before.
    upright = lax.optimization_barrier(lax.transpose(rows, (1, 0)))
    product = lax.dot_general(matrix, upright, (((1,), (0,)), ((), ())), **parameters)
    return lax.transpose(lax.optimization_barrier(product), (1, 0))
