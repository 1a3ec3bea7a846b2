"""Write src/manyhands/text/unicode.npz: what each character is, and its lower case.

The table is a file, and not read from Python's own ``unicodedata`` at run time, so that a
model reads text the same way under every Python version. Run it again to move to the
Unicode version of the Python at hand; that changes the tokens of new characters.
"""

import sys
import unicodedata
from pathlib import Path

import numpy as np

from manyhands.text.characters import MARK, SIGN, SINGLE, SKIP, SPACE, WORD

TARGET = Path(__file__).parent.parent / "src/manyhands/text/unicode.npz"
KINDS = {"L": WORD, "N": WORD, "M": MARK, "P": SIGN, "S": SIGN, "Z": SPACE, "C": SPACE}
# Scripts written without spaces: each character stands for itself.
SINGLES = ("CJK UNIFIED", "CJK COMPATIBILITY IDEOGRAPH", "HIRAGANA", "KATAKANA")


def kind(code: int) -> int:
    character = chr(code)
    category = unicodedata.category(character)
    if category == "Cf":  # joiners and soft hyphens belong inside a word; U+200B ends one
        return SPACE if code == 0x200B else SKIP
    if category[0] == "L" and unicodedata.name(character, "").startswith(SINGLES):
        return SINGLE
    return KINDS[category[0]]


def lower(code: int) -> int:
    lowered = chr(code).lower()
    return ord(lowered[0])  # one character for one: "İ" becomes "i", without its dot above


def main() -> None:
    kinds = np.array([kind(code) for code in range(sys.maxunicode + 1)], np.uint8)
    starts = np.flatnonzero(np.r_[True, kinds[1:] != kinds[:-1]]).astype(np.int32)
    upper = [code for code in range(sys.maxunicode + 1) if lower(code) != code]
    np.savez_compressed(
        TARGET,
        starts=starts,
        kinds=kinds[starts],
        upper=np.array(upper, np.int32),
        lower=np.array([lower(code) for code in upper], np.int32),
        version=np.array([int(n) for n in unicodedata.unidata_version.split(".")], np.int32),
    )
    print(f"{TARGET}: Unicode {unicodedata.unidata_version}, {TARGET.stat().st_size} bytes")


if __name__ == "__main__":
    main()
