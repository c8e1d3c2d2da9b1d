"""The cube root as Java's `Math.cbrt` gives it, to the last bit (fdlibm, s_cbrt.c).

The C library's is another, and says that the cube root of 27 is 3.0000000000000004.
"""

from __future__ import annotations

import math
import struct
from typing import Final

_ROUGH: Final = 715_094_163  # (682 - 0.03306235651) * 2**20
_ROUGH_OF_SMALL: Final = 696_219_795  # (664 - 0.03306235651) * 2**20
_SMALLEST_NORMAL: Final = 2.0**-1022
_C, _D, _E, _F, _G = 19 / 35, -864 / 1225, 99 / 70, 45 / 28, 5 / 14


def cube_root(number: float) -> float:
    """Of any number; of what is not finite, itself."""
    if number == 0 or not math.isfinite(number):
        return number
    size = abs(number)
    if size < _SMALLEST_NORMAL:
        root = _of_high_word(_high_word(size * 2.0**54) // 3 + _ROUGH_OF_SMALL)
    else:
        root = _of_high_word(_high_word(size) // 3 + _ROUGH)  # to 5 bits
    more = _C + root * root / size * root
    root *= _G + _F / (more + _E + _D / more)  # to 23 bits
    root = _of_high_word(_high_word(root) + 1)  # to 20 bits, larger than the cube root
    quotient = size / (root * root)
    root += root * ((quotient - root) / (root + root + quotient))
    return math.copysign(root, number)


def _high_word(number: float) -> int:
    return int(struct.unpack(">q", struct.pack(">d", number))[0]) >> 32


def _of_high_word(word: int) -> float:
    return float(struct.unpack(">d", struct.pack(">q", word << 32))[0])
